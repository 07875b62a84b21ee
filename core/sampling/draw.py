"""Draws by inverse transform sampling: one uniform number per row.

The order of the candidates depends only on the row's own parameters. Without min_p, top_k and
top_p the whole vocabulary is drawn from in the order of ids. With any of them the candidates are
ranked: higher logit first, lower id first among equals.

The operations give a row the same result alone and in any batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch

from core.sampling.best import argmax

FAILED = -1
"""In place of a token: the logits of the row contain NaN or infinity."""

UNRESOLVED = -2
"""In place of a token: the drawn token is not among the candidates."""

MASKED = -3
"""In place of a token: every logit of the row is -inf."""

RowDraw: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""One token per row from logits, filters and random bits; see core.kernels.triton.draw."""

_BLOCK = 512


def load_row_draw(vocab_size: int, dtype: torch.dtype, device: torch.device) -> RowDraw | None:
    """Compile the draw kernel for logits of ``dtype``. None on a CPU, which needs no kernel.

    On CUDA every batch with random rows uses this kernel, so no draw reads its tokens back.
    """
    if device.type != "cuda":
        return None
    from core.kernels.triton.draw import draw_rows  # noqa: PLC0415 - needs Triton

    filters = torch.ones(4, 1, dtype=torch.float64, device=device)
    bits = torch.zeros(1, dtype=torch.int64, device=device)
    for kind in {dtype, torch.float32}:  # edited logits are float32
        draw_rows(torch.zeros(1, vocab_size, dtype=kind, device=device), filters, bits)
    return draw_rows


def greedy_tokens(logits: torch.Tensor) -> torch.Tensor:
    """Return the best token of each row, the lowest id on ties; int64 [num_rows].

    Or FAILED, or MASKED.
    """
    token = argmax(logits)
    value = logits.gather(1, token[:, None])[:, 0]
    return torch.where(value.abs() < torch.inf, token, _reason(value))


def _reason(largest: torch.Tensor) -> torch.Tensor:
    """Return why a row with this largest logit, or NaN, has no token: FAILED or MASKED."""
    return torch.where(largest == -torch.inf, MASKED, FAILED)


def draw_unfiltered(logits: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Draw one token per row from the softmax of ``logits``, in the order of ids.

    The distribution function has two levels, sums of blocks and then one block. This avoids a
    running sum over the vocabulary, which is slower and less exact in float32.

    ``logits`` is float32 [num_rows, vocab_size], already divided by the temperature; ``u`` is
    float64 [num_rows] in [0, 1). Returns int64 [num_rows], FAILED or MASKED where there is no
    distribution.
    """
    num_rows, vocab_size = logits.shape
    weights = logits.softmax(dim=1)
    num_whole = vocab_size // _BLOCK
    size = num_whole * _BLOCK
    num_blocks = num_whole + (size < vocab_size)
    sums = weights.new_zeros(num_rows, num_blocks + 1)  # the first column stays 0
    blocks = weights[:, :size].view(num_rows, num_whole, _BLOCK)
    torch.sum(blocks, dim=2, out=sums[:, 1 : num_whole + 1])
    if size < vocab_size:
        torch.sum(weights[:, size:], dim=1, out=sums[:, num_blocks])
    mass = sums.cumsum(dim=1, dtype=torch.float64)  # mass of all blocks before each

    total = mass[:, -1:]
    target = u[:, None] * total
    after = torch.searchsorted(mass, target, right=True).clamp_(max=num_blocks)
    block = after - 1
    lower = mass.gather(1, block)
    fraction = ((target - lower) / (mass.gather(1, after) - lower)).clamp_(0.0, 1.0 - 2.0**-52)

    ids = block * _BLOCK + torch.arange(_BLOCK, device=logits.device)  # [num_rows, _BLOCK]
    if size == vocab_size:
        inner = weights.gather(1, ids)
    else:
        inner = weights.gather(1, ids.clamp(max=vocab_size - 1)).mul_(ids < vocab_size)
    inner = inner.cumsum(dim=1, dtype=torch.float64)
    place = torch.searchsorted(inner, fraction * inner[:, -1:], right=True)
    token = ids.gather(1, place.clamp_(max=_BLOCK - 1))
    exists = total < torch.inf
    if not exists.all():  # no cost on a CPU, the only device that draws here
        token = torch.where(exists, token, _reason(logits.amax(dim=1, keepdim=True)))
    return token[:, 0]


def draw_filtered(
    values: torch.Tensor,
    ids: torch.Tensor,
    filters: torch.Tensor,
    total: torch.Tensor | None,
    u: torch.Tensor,
    *,
    vocab_size: int,
    is_bounded: bool,
) -> torch.Tensor:
    """Draw one token per row from what min_p, then top_k, then top_p leave over.

    ``values`` are the largest logits of each row in descending order, before the temperature, and
    ``ids`` their tokens, both [num_rows, num_candidates]. If they are the whole vocabulary, equal
    logits must be in the order of ids, otherwise in any order. ``filters`` is float64
    [4, num_rows]: temperature, min_p, top_k, top_p; the last three are 0, ``vocab_size`` and 1
    for "off". ``is_bounded`` says that no row's top_k exceeds the candidates: then all tokens
    that pass min_p and top_k are among them. ``total`` is float64 [num_rows], the mass of the
    whole vocabulary in units of the best token's, for rows limited by top_p alone, infinite for
    others; None if no row needs it.

    Weights are relative to the best token's, so min_p compares with them directly. top_p is
    relative to the mass that min_p and top_k leave over, and keeps the shortest run of the best
    candidates that reaches it. Returns int64 [num_rows], FAILED or MASKED where there is no
    distribution, UNRESOLVED where the candidates do not suffice; the whole vocabulary always does.
    """
    num_candidates = values.shape[1]
    temperature, min_p, top_k, top_p = filters[:, :, None]  # each [num_rows, 1]

    wide = values.double()
    weights = wide.sub_(wide[:, :1].clone()).div_(temperature).exp_()
    ranks = torch.arange(num_candidates, device=values.device)
    survives = (weights >= min_p).logical_and_(ranks < top_k)
    mass = (weights * survives).cumsum(dim=1)  # [num_rows, num_candidates]

    survived = mass[:, -1:]
    if is_bounded:
        rank = _rank_within(mass, top_p * survived, u[:, None])
    else:
        ends_inside = ~survives[:, -1:] | (top_k <= num_candidates)
        beyond = torch.inf if total is None else total[:, None]
        survived = torch.where(ends_inside, survived, beyond)
        rank = _rank_if_certain(mass, top_p * survived, survived, weights[:, -1:], u[:, None])
    is_resolved = rank < num_candidates
    rank = rank.clamp_(max=num_candidates - 1)

    if num_candidates == vocab_size:
        token = ids.gather(1, rank)
    else:
        # Order the tokens equal to the drawn one by id. If it equals the last candidate, some of
        # its equals may be missing.
        value = values.gather(1, rank)
        place = rank - torch.searchsorted(-values, -value)
        token = ids.masked_fill(values != value, vocab_size).sort(dim=1).values.gather(1, place)
        is_resolved = is_resolved.logical_and_(value > values[:, -1:])

    token = torch.where(is_resolved, token, UNRESOLVED)
    # NaN and infinity rank first, so the first value shows both.
    largest = values[:, :1]
    return torch.where(largest.abs() < torch.inf, token, _reason(largest))[:, 0]


def _rank_within(mass: torch.Tensor, limit: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Return the rank drawn from the shortest run whose mass reaches ``limit``.

    ``mass`` is [num_rows, num_candidates] and reaches ``limit``; the others and the result are
    [num_rows, 1].
    """
    last = torch.searchsorted(mass, limit).clamp_(max=mass.shape[1] - 1)
    return torch.searchsorted(mass, u * mass.gather(1, last), right=True)


def _rank_if_certain(
    mass: torch.Tensor,
    limit: torch.Tensor,
    survived: torch.Tensor,
    smallest_weight: torch.Tensor,
    u: torch.Tensor,
) -> torch.Tensor:
    """Return the rank drawn from the shortest run whose mass reaches ``limit``.

    Where the run ends among the candidates its mass is known. Where it does not, its mass lies
    between ``limit`` and ``limit`` plus one more weight, which is at most ``smallest_weight``. A
    draw on which both bounds agree equals the exact one; otherwise the result is num_candidates.
    """
    num_candidates = mass.shape[1]
    last = torch.searchsorted(mass, limit)
    is_known = last < num_candidates
    known = mass.gather(1, last.clamp_(max=num_candidates - 1))
    low = torch.where(is_known, known, limit)
    high = torch.where(is_known, known, torch.minimum(limit + smallest_weight, survived))
    rank = torch.searchsorted(mass, u * low, right=True)
    other = torch.searchsorted(mass, u * high, right=True)
    return rank.masked_fill_(rank != other, num_candidates)
