"""QueryKeyNorm: RMSNorm of each head's query and key, as in Qwen3 and Gemma 3."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class QueryKeyNorm:
    """RMSNorm over ``head_dim``. ``offset`` is added to the weights, as in ``norm.rms_norm``."""

    query_weight: torch.Tensor  # [head_dim]
    key_weight: torch.Tensor  # [head_dim]
    epsilon: float
    offset: float
