"""The best token of each row, and why a row has none."""

from __future__ import annotations

import torch

from core.kernels.cpu.library import kernels
from core.kernels.cpu.sampling import best_tokens

FAILED = -1
"""In place of a token: the logits of the row contain NaN or infinity."""

MASKED = -3
"""In place of a token: every logit of the row is -inf."""


def greedy_tokens(logits: torch.Tensor) -> torch.Tensor:
    """Return the best token of each row, the lowest id on ties; int64 [num_rows].

    Or FAILED, or MASKED. On a CPU torch's argmax compares one number at a time.
    """
    is_supported = logits.device.type == "cpu" and logits.dtype is torch.float32
    library = kernels() if is_supported else None
    if library is not None:
        return best_tokens(library, logits)
    token = logits.argmax(dim=1)
    value = logits.gather(1, token[:, None])[:, 0]
    return torch.where(value.abs() < torch.inf, token, reason(value))


def reason(largest: torch.Tensor) -> torch.Tensor:
    """Return why a row with this largest logit, or NaN, has no token: FAILED or MASKED."""
    return torch.where(largest == -torch.inf, MASKED, FAILED)
