"""HeadNorm: the norms of a family that normalises each head's query and key."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class HeadNorm:
    """RMSNorm over the numbers of a head; see ``Ops.rms_norm`` for the offset."""

    query_weight: torch.Tensor  # [head_dim]
    key_weight: torch.Tensor  # [head_dim]
    epsilon: float
    offset: float
