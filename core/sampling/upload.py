"""Numbers from the host to the device of the logits, without waiting for the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Float64Array = npt.NDArray[np.float64]


def upload(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """``array`` on ``device``; as float64 it may hold every token id and row number exactly.

    On the CPU the memory is shared, so the array must not change while the tensor lives.
    """
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def exclude(logits: torch.Tensor, rows: torch.Tensor, ids: torch.Tensor) -> None:
    """Set the logits of single tokens to -inf.

    Not by ``logits[rows, ids] = -inf``, which makes a number on the host of it and waits until
    that has been copied.
    """
    logits.index_put_((rows, ids), logits.new_full((), -torch.inf))


def entries(
    logits: torch.Tensor,
    rows: list[int],
    ids: list[Float64Array],
    *columns: list[Float64Array],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Addresses of single logits, and numbers that go with them, in one transfer.

    ``ids[i]`` are token ids in row ``rows[i]``; each column holds as many numbers per row. Ids
    outside the vocabulary are left out: such a token cannot be sampled, so nothing about it can
    be changed, and one request must not be able to break the step of all.

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
