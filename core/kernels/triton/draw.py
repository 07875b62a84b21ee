"""Sample one token per row without sorting: greedy, or random with top_k, top_p and min_p.

One program samples one row. min_p is a threshold on the weight. top_k and top_p use rejection
sampling with a pivot: draw a token from the tokens that pass min_p, and accept it if fewer than
top_k tokens rank before it and these have less than top_p of the mass. Otherwise draw again among
the tokens that rank before it. The accepted tokens have the right probabilities, and most first
draws are accepted. (Source: FlashInfer, "Sorting-Free GPU Kernels for LLM Sampling", 2025.)

If a row has both top_k and top_p, top_p is a share of the mass of the top_k tokens. Then top_k
becomes a threshold on the logit, found by bisection over the ordered bit patterns of floats.

Every draw inverts the cumulative distribution in order of ids: sums of blocks first, then one
block. The token depends only on the row's logits, limits and random bits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 4096
"""Tokens that a program processes at once."""


@triton.jit
def _mix(bits):
    """One step of SplitMix64; see core.sampling.random."""
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB
    return bits ^ (bits >> 31)


@triton.jit
def _logits(row, ids, vocab_size):
    """Load logits; -0.0 becomes 0.0, so that equal logits have equal keys."""
    x = tl.load(row + ids, mask=ids < vocab_size, other=float("-inf")).to(tl.float32)
    return tl.where(x == 0.0, 0.0, x)


@triton.jit
def _key(x):
    """Map floats to int32 in the same order."""
    bits = x.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _ranks_before(x, ids, value, token):
    """Test for a logit above ``value``, or an equal logit and an id below ``token``."""
    return (x > value) | ((x == value) & (ids < token))


@triton.jit
def _weights(row, ids, vocab_size, limits, value, token):
    """Return the weights of the candidates, relative to the argmax, and which ids they are.

    Candidates pass all limits and rank before the pivot (``value``, ``token``). Others weigh 0.
    """
    best, temperature, min_p, last_value, last_id = limits
    x = _logits(row, ids, vocab_size)
    weights = tl.exp((x - best) / temperature)
    is_left = (weights >= min_p) & _ranks_before(x, ids, last_value, last_id + 1)
    is_left &= _ranks_before(x, ids, value, token)
    return tl.where(is_left, weights, 0.0), is_left


@triton.jit
def _mass(row, vocab_size, limits, value, pivot, BLOCK: tl.constexpr):
    """Sum the weights of the candidates (float64) and count them."""
    mass = tl.full([], 0.0, tl.float64)
    count = 0
    for start in range(0, vocab_size, BLOCK):
        ids = start + tl.arange(0, BLOCK)
        weights, is_left = _weights(row, ids, vocab_size, limits, value, pivot)
        mass += tl.sum(weights, 0).to(tl.float64)
        count += tl.sum(is_left.to(tl.int32), 0)
    return mass, count


@triton.jit
def _token_at(row, vocab_size, limits, value, pivot, target, BLOCK: tl.constexpr):
    """Find the token whose share of the cumulative mass contains ``target``."""
    passed = tl.full([], 0.0, tl.float64)
    before = tl.full([], 0.0, tl.float64)
    block = 0
    for start in range(0, vocab_size, BLOCK):
        ids = start + tl.arange(0, BLOCK)
        weights, _ = _weights(row, ids, vocab_size, limits, value, pivot)
        size = tl.sum(weights, 0).to(tl.float64)
        is_here = (passed <= target) & (size > 0.0)
        block = tl.where(is_here, start, block)
        before = tl.where(is_here, passed, before)
        passed += size
    ids = block + tl.arange(0, BLOCK)
    weights, _ = _weights(row, ids, vocab_size, limits, value, pivot)
    inside = weights.to(tl.float64)
    is_passed = before + tl.cumsum(inside, 0) - inside <= target
    return tl.max(tl.where((inside > 0.0) & is_passed, ids, 0), 0)


@triton.jit
def _best(row, vocab_size, BLOCK: tl.constexpr):
    """Find the largest logit and its lowest id, and count the NaNs."""
    best = float("-inf")
    token = 0
    num_bad = 0
    for start in range(0, vocab_size, BLOCK):
        ids = start + tl.arange(0, BLOCK)
        x = _logits(row, ids, vocab_size)
        num_bad += tl.sum((x != x).to(tl.int32), 0)  # noqa: PLR0124 - NaN
        block_best = tl.max(x, 0)
        block_token = tl.min(tl.where(x == block_best, ids, vocab_size), 0)
        token = tl.where(block_best > best, block_token, token)
        best = tl.maximum(best, block_best)
    return best, token, num_bad


@triton.jit
def _count(row, vocab_size, key, BLOCK: tl.constexpr):
    """Count the tokens whose key is at least ``key``."""
    count = 0
    for start in range(0, vocab_size, BLOCK):
        ids = start + tl.arange(0, BLOCK)
        is_counted = (_key(_logits(row, ids, vocab_size)) >= key) & (ids < vocab_size)
        count += tl.sum(is_counted.to(tl.int32), 0)
    return count


@triton.jit
def _last_of_top_k(row, vocab_size, top_k, best, BLOCK: tl.constexpr):
    """Find the logit and the id of the token with rank ``top_k``."""
    low = tl.full([], -0x80000000, tl.int64)  # at least top_k keys are not below it
    high = _key(best).to(tl.int64)
    while low < high:
        middle = high - (high - low) // 2
        if _count(row, vocab_size, middle.to(tl.int32), BLOCK) >= top_k:
            low = middle
        else:
            high = middle - 1
    last = low.to(tl.int32)
    num_wanted = top_k - _count(row, vocab_size, last + 1, BLOCK)  # of the equal logits
    num_passed, num_before, block = 0, 0, 0
    for start in range(0, vocab_size, BLOCK):
        ids = start + tl.arange(0, BLOCK)
        is_equal = (_key(_logits(row, ids, vocab_size)) == last) & (ids < vocab_size)
        count = tl.sum(is_equal.to(tl.int32), 0)
        is_here = (num_passed < num_wanted) & (count > 0)
        block = tl.where(is_here, start, block)
        num_before = tl.where(is_here, num_passed, num_before)
        num_passed += count
    ids = block + tl.arange(0, BLOCK)
    is_equal = (_key(_logits(row, ids, vocab_size)) == last) & (ids < vocab_size)
    place = num_before + tl.cumsum(is_equal.to(tl.int32), 0)
    last_id = tl.max(tl.where(is_equal & (place <= num_wanted), ids, 0), 0)
    bits = last ^ ((last >> 31) & 0x7FFFFFFF)
    return bits.to(tl.float32, bitcast=True), last_id


@triton.jit(do_not_specialize=["num_rows"])  # never compile again while serving
def _draw_kernel(
    tokens,  # [num_rows] int64
    logits,  # [num_rows, vocab_size]
    row_stride,
    vocab_size,
    filters,  # [4, num_rows] float64: temperature (0: greedy), min_p, top_k, top_p
    random_bits,  # [num_rows] int64
    num_rows,
    BLOCK: tl.constexpr,
):
    index = tl.program_id(0)
    row = logits + index.to(tl.int64) * row_stride
    temperature = tl.load(filters + index).to(tl.float32)
    min_p = tl.load(filters + num_rows + index).to(tl.float32)
    top_k = tl.load(filters + 2 * num_rows + index).to(tl.int32)
    top_p = tl.load(filters + 3 * num_rows + index)

    best, token, num_bad = _best(row, vocab_size, BLOCK)
    if (num_bad > 0) | (tl.abs(best) == float("inf")):
        is_masked = (num_bad == 0) & (best < 0.0)
        token = tl.where(is_masked, -3, -1)  # MASKED, FAILED
    elif temperature > 0.0:
        last_value = float("-inf")
        last_id = vocab_size
        if (top_k < vocab_size) & (top_p < 1.0):
            last_value, last_id = _last_of_top_k(row, vocab_size, top_k, best, BLOCK)
            top_k = vocab_size
        limits = (best, temperature, min_p, last_value, last_id)
        value = float("-inf")  # every token ranks before the first pivot
        pivot = vocab_size
        mass, count = _mass(row, vocab_size, limits, value, pivot, BLOCK)
        limit = tl.where(top_p < 1.0, top_p * mass, float("inf"))
        bits = tl.load(random_bits + index).to(tl.uint64)
        is_kept = False
        while not is_kept:
            target = (bits >> 12).to(tl.float64) * (1.0 / (1 << 52)) * mass
            token = _token_at(row, vocab_size, limits, value, pivot, target, BLOCK)
            is_kept = (top_p >= 1.0) & (top_k >= vocab_size)
            if not is_kept:
                value = _logits(row, token, vocab_size)
                pivot = token
                mass, count = _mass(row, vocab_size, limits, value, pivot, BLOCK)
                is_kept = (mass < limit) & (count < top_k)
                bits = _mix(bits + 0x9E3779B97F4A7C15)
    tl.store(tokens + index, token.to(tl.int64))


def draw_rows(
    logits: torch.Tensor, filters: torch.Tensor, random_bits: torch.Tensor, *, block: int = BLOCK
) -> torch.Tensor:
    """Sample one token per row; returns int64 [num_rows].

    A row with NaN or infinity gives FAILED (-1), one of only -inf MASKED (-3).

    ``logits`` is [num_rows, vocab_size] of any float type, rows contiguous. ``filters`` is float64
    [4, num_rows]: temperature (0: greedy), min_p (below 1), top_k (``vocab_size``: off), top_p
    (above 0). ``random_bits`` is int64 [num_rows]; the first draw uses its upper 52 bits. Equal
    logits rank in order of ids. Tests set ``block``.
    """
    num_rows, vocab_size = logits.shape
    assert logits.stride(1) == 1
    assert filters.is_contiguous()
    tokens = torch.empty(num_rows, dtype=torch.int64, device=logits.device)
    _draw_kernel[(num_rows,)](
        tokens,
        logits,
        logits.stride(0),
        vocab_size,
        filters,
        random_bits,
        num_rows,
        BLOCK=block,
        num_warps=16,
        enable_fp_fusion=True,
    )
    return tokens
