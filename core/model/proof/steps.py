"""The steps of the proof: two short sequences through an assembled engine.

They are packed side by side and prefilled in two chunks, the second one on a cached block of the
first. The last tokens are computed one a step.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Any

import torch

from core.attention.base import BackendFactory
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.kv.manager import KVCacheManager
from core.layer_spec import LayerSpec
from core.model.cache import KVCache
from core.model.forward import EagerForward
from core.model.hook import AttentionHook
from core.model_input import ModelInputs
from core.sequence import Sequence

BLOCK_SIZE = 16
WINDOW = 19
"""Tokens of the smallest reduced window: more than a block, less than either sequence."""

LENGTHS = (41, 32)
"""Tokens of the sequences. They have the first block in common."""

FIRST_CHUNK_ENDS = (21, 23)
NUM_DECODED = 3
"""Tokens at the end that are computed one per step."""

_NUM_BLOCKS = sum(-(-length // BLOCK_SIZE) for length in LENGTHS)

NUM_COMPARED = 2
"""Last tokens of a chunk whose logits are compared."""


@dataclass(frozen=True, slots=True)
class Step:
    """Number of tokens of each sequence in a step, and the reason to refuse if they differ."""

    counts: tuple[int, int]
    finding: str


_CHUNKED = (
    "chunked prefill gives other logits than transformers' forward pass: "
    "it keeps state outside of attention or ignores positions"
)
_DECODED = "decoding gives other logits than transformers' forward pass"
STEPS = (
    Step(
        (FIRST_CHUNK_ENDS[0], FIRST_CHUNK_ENDS[1] - BLOCK_SIZE),
        "packed prefill gives other logits than transformers' forward pass",
    ),
    Step(
        (
            LENGTHS[0] - NUM_DECODED - FIRST_CHUNK_ENDS[0],
            LENGTHS[1] - NUM_DECODED - FIRST_CHUNK_ENDS[1],
        ),
        _CHUNKED,
    ),
    *[Step((1, 1), _DECODED)] * NUM_DECODED,
)
COMPARED = [
    [
        *range(end - NUM_COMPARED, end),
        *range(length - NUM_DECODED - NUM_COMPARED, length),
    ]
    for end, length in zip(FIRST_CHUNK_ENDS, LENGTHS, strict=True)
]
"""Tokens of each sequence whose logits are compared: the last ones of each step."""


def run_steps(
    model: Any,
    hook: AttentionHook,
    factory: BackendFactory,
    layers: Items[LayerSpec],
    tokens: list[list[int]],
    dtype: torch.dtype,
    device: torch.device,
) -> Iterator[tuple[Step, list[slice], torch.Tensor]]:
    """Compute each step, with a small cache of ``dtype`` on ``device``.

    Yields the step, the COMPARED tokens of each sequence whose logits it has, and the logits.
    Install another attention function in the hook afterwards.
    """
    cache = KVCache.small(
        layers, _NUM_BLOCKS, max(LENGTHS), block_size=BLOCK_SIZE, dtype=dtype, device=device
    )
    kv = KVCacheManager(_NUM_BLOCKS, BLOCK_SIZE, enable_prefix_caching=True, windows=cache.windows)
    attention = cache.attention(factory)
    hook.attach(attention)
    forward = EagerForward(model, attention, device)
    sequences = [_sequence(ids, len(cache.groups)) for ids in tokens]
    inputs = ModelInputs(BLOCK_SIZE)  # a decode step goes on from the one before, as when serving
    starts = [0] * len(sequences)
    for step in STEPS:
        for sequence, count in zip(sequences, step.counts, strict=True):
            kv.reuse_cached(sequence)
            kv.allocate(sequence)
            kv.cache_blocks(sequence, sequence.num_computed_tokens + count)
        counts = [min(count, NUM_COMPARED) for count in step.counts]
        ends = itertools.accumulate(step.counts)
        wanted = [
            index
            for end, count in zip(ends, counts, strict=True)
            for index in range(end - count, end)
        ]
        scheduled = list(zip(sequences, step.counts, strict=True))
        batch = inputs.of(scheduled, wanted, wants_best=False)
        with torch.inference_mode():
            logits = forward(batch).values.float()
        for sequence, count in scheduled:
            sequence.num_computed_tokens += count
        rows = [slice(at, at + count) for at, count in zip(starts, counts, strict=True)]
        starts = [row.stop for row in rows]
        yield step, rows, logits


def prompts(vocab_size: int) -> list[list[int]]:
    """Fixed tokens; the first block is the same in all."""
    first = [(i * 7919 + 13) % vocab_size for i in range(BLOCK_SIZE)]
    return [
        first + [(i * 104729 + 31 * n + 17) % vocab_size for i in range(BLOCK_SIZE, length)]
        for n, length in enumerate(LENGTHS)
    ]


def _sequence(prompt: list[int], num_groups: int) -> Sequence:
    request = EngineRequest(
        request_id="proof", prompt_token_ids=tuple(prompt), params=SamplingParams(max_tokens=1)
    )
    return Sequence(request, seed=0, num_groups=num_groups)
