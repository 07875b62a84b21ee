"""Addresses of single logits, uploaded without waiting for the device."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from core.system.pinned import upload

Float64Array = npt.NDArray[np.float64]


def exclude(logits: torch.Tensor, rows: torch.Tensor, ids: torch.Tensor) -> None:
    """Set single logits to -inf.

    ``logits[rows, ids] = -inf`` would copy a number from the host and wait for it.
    """
    logits.index_put_((rows, ids), logits.new_full((), -torch.inf))


def entries(
    logits: torch.Tensor,
    rows: list[int],
    ids: list[Float64Array],
    *columns: list[Float64Array],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Upload addresses of single logits, and numbers that belong to them, in one transfer.

    ``ids[i]`` are token ids in row ``rows[i]``; each column holds as many numbers per row. Ids
    outside the vocabulary are left out: they cannot be sampled, and one request must not break
    the step of the whole batch. Everything travels as float64, which is exact for ids and rows.

    Returns row indices [num_entries], token ids [num_entries] (both int64) and the columns
    [num_columns, num_entries] (float32).
    """
    packed = np.empty((2 + len(columns), sum(map(len, ids))), dtype=np.float64)
    if packed.shape[1]:
        packed[0] = np.repeat(np.asarray(rows, dtype=np.float64), [len(row) for row in ids])
        for line, column in zip(packed[1:], (ids, *columns), strict=True):
            np.concatenate(column, out=line)
    is_known = (packed[1] >= 0) & (packed[1] < logits.shape[1])
    if not is_known.all():
        packed = np.ascontiguousarray(packed[:, is_known])
    tensor = upload(packed, logits.device)
    address = tensor[:2].long()
    return address[0], address[1], tensor[2:].float()
