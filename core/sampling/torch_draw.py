"""The draw in torch's operations: the reference of the kernels, and what serves without them.

It inverts the distribution function with one uniform number per row. The order of the candidates
depends only on the row's own parameters. Without min_p, top_k and top_p the whole vocabulary is
drawn from in the order of ids. With any of them the candidates are ranked: higher logit first,
lower id first among equals.

The operations give a row the same result alone and in any batch.
"""

from __future__ import annotations

import torch

from core.sampling.greedy import greedy_tokens, reason

_BLOCK = 512


def draw_rows(
    logits: torch.Tensor, filters: torch.Tensor, random_bits: torch.Tensor
) -> torch.Tensor:
    """See ``core.sampling.draw.RowDraw``."""
    vocab_size = logits.shape[1]
    logits = logits.float()
    u = (random_bits >> 12 & (1 << 52) - 1).double() * 2.0**-52
    temperature, min_p, top_k, top_p = filters
    is_greedy = temperature == 0
    is_filtered = ((min_p > 0) | (top_k < vocab_size) | (top_p < 1)) & ~is_greedy
    tokens = greedy_tokens(logits)
    rows = (~is_greedy & ~is_filtered).nonzero()[:, 0]
    if len(rows):
        scaled = logits[rows] / temperature[rows, None].float()
        tokens[rows] = draw_unfiltered(scaled, u[rows])
    rows = is_filtered.nonzero()[:, 0]
    if len(rows):
        tokens[rows] = draw_filtered(logits[rows], filters[:, rows], u[rows])
    return tokens


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
    token = torch.where(total < torch.inf, token, reason(logits.amax(dim=1, keepdim=True)))
    return token[:, 0]


def draw_filtered(logits: torch.Tensor, filters: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Draw one token per row from what min_p, then top_k, then top_p leave over.

    ``logits`` is float32 [num_rows, vocab_size], before the temperature; ``filters`` is that of
    RowDraw. Weights are relative to the best token's, so min_p compares with them directly. top_p
    is relative to the mass that min_p and top_k leave over, and keeps the shortest run of the best
    tokens that reaches it. Returns int64 [num_rows], FAILED or MASKED where there is no
    distribution.
    """
    temperature, min_p, top_k, top_p = filters[:, :, None]  # each [num_rows, 1]
    values, ids = logits.sort(dim=1, descending=True, stable=True)
    best = values[:, :1]
    weights = ((values.double() - best) / temperature).exp()
    ranks = torch.arange(values.shape[1], device=values.device)
    survives = (weights >= min_p) & (ranks < top_k)
    mass = (weights * survives).cumsum(dim=1)

    limit = top_p * mass[:, -1:]
    last = torch.searchsorted(mass, limit).clamp_(max=mass.shape[1] - 1)
    rank = torch.searchsorted(mass, u[:, None] * mass.gather(1, last), right=True)
    token = ids.gather(1, rank.clamp_(max=mass.shape[1] - 1))
    # NaN and infinity rank first, so the best value shows both.
    return torch.where(best.abs() < torch.inf, token, reason(best))[:, 0]
