"""argmax and top-k of logits, faster than torch's on a CPU.

A maximum over blocks is one vectorised pass, while torch's ``argmax`` and ``topk`` compare one
number at a time on a CPU. So a long row is cut into blocks, the best blocks are found first, and
only those are searched. Compiled kernels, where present, find the maximum. A GPU is fast at both
operations and pays for each extra kernel.
"""

from __future__ import annotations

import torch

from core.kernels.cpu.library import kernels

_MIN_BLOCKED = 32_768  # smallest vocabulary for which blocks pay
_ARGMAX_BLOCK = 256
_TOPK_BLOCK = 32


def argmax(x: torch.Tensor) -> torch.Tensor:
    """Return the index of each row's maximum, the lowest one on ties. NaN counts as the maximum.

    ``x`` is [num_rows, vocab_size]; returns int64 [num_rows].
    """
    vocab_size = x.shape[1]
    if x.is_cuda or vocab_size < _MIN_BLOCKED:
        return x.argmax(dim=1)
    library = kernels() if x.dtype is torch.float32 else None
    if library is not None:
        return library.argmax(x)
    num_blocks = vocab_size // _ARGMAX_BLOCK
    size = num_blocks * _ARGMAX_BLOCK
    blocks = x[:, :size].view(x.shape[0], num_blocks, _ARGMAX_BLOCK)
    maxima = blocks.amax(dim=2)  # [num_rows, num_blocks]
    block = maxima.argmax(dim=1, keepdim=True)  # [num_rows, 1]
    rows = torch.arange(x.shape[0], device=x.device)
    inside = blocks[rows, block[:, 0]].argmax(dim=1)
    best = block[:, 0] * _ARGMAX_BLOCK + inside
    if size == vocab_size:
        return best
    last = size + x[:, size:].argmax(dim=1)
    pair = torch.stack([best, last], dim=1)  # [num_rows, 2]
    winner = x.gather(1, pair).argmax(dim=1, keepdim=True)
    best = pair.gather(1, winner)
    return best[:, 0]


def topk(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ``k`` largest values of each row in descending order, and their indices.

    The order of equal values is not defined, nor which of those equal to the last value are
    included. ``x`` is [num_rows, vocab_size]; returns [num_rows, k] twice.
    """
    vocab_size = x.shape[1]
    num_blocks = vocab_size // _TOPK_BLOCK
    if x.is_cuda or vocab_size < _MIN_BLOCKED or num_blocks < 4 * k:
        values, ids = x.topk(k, dim=1)
        return values, ids
    # The k blocks with the largest maxima hold the k largest values: the maxima of those k blocks
    # exceed or equal every entry of the other blocks.
    size = num_blocks * _TOPK_BLOCK
    maxima = x[:, :size].view(x.shape[0], num_blocks, _TOPK_BLOCK).amax(dim=2)
    blocks = maxima.topk(k, dim=1, sorted=False).indices  # [num_rows, k]
    ids = (blocks[:, :, None] * _TOPK_BLOCK + torch.arange(_TOPK_BLOCK, device=x.device)).flatten(1)
    if size < vocab_size:
        rest = torch.arange(size, vocab_size, device=x.device).expand(x.shape[0], -1)
        ids = torch.cat([ids, rest], dim=1)
    values, order = x.gather(1, ids).topk(k, dim=1)
    return values, ids.gather(1, order)
