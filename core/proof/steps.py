"""The steps of the proof: two short sequences through an assembled engine.

They are packed side by side and prefilled in two chunks, the second one on a cached block of the
first. The last tokens are computed one a step. Then the first sequence is computed again with
another cut, and once more on the blocks that are cached of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import TypeAlias

import torch

from core.attention.base import AttentionBackend, BackendFactory
from core.batch.logits import Logits
from core.batch.model_input import ModelInput, ModelInputs
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.kv.layer_spec import LayerSpec
from core.kv.manager import KVCacheManager
from core.sizing.cache import KVCache
from core.state.sequence import Sequence

Forward: TypeAlias = Callable[[ModelInput], Logits]
"""Computes a step, and plans its attention first."""

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

CUT_ELSEWHERE = 37
"""Tokens up to the cut when the first sequence is computed again: within a block of the cache, and
other than those of the first cuts."""


@dataclass(frozen=True, slots=True)
class Step:
    """The number of tokens of each sequence that are computed when a step ends.

    The logits of the last ``num_compared`` are compared; ``finding`` is the reason to refuse if
    they differ.
    """

    ends: tuple[int, int]
    num_compared: int
    finding: str


_FIRST, _SECOND = LENGTHS
STEPS = (
    Step(
        FIRST_CHUNK_ENDS,
        NUM_COMPARED,
        "packed prefill gives other logits than transformers' forward pass",
    ),
    Step(
        (_FIRST - NUM_DECODED, _SECOND - NUM_DECODED),
        NUM_COMPARED,
        "chunked prefill gives other logits than transformers' forward pass: "
        "it keeps state outside of attention or ignores positions",
    ),
    *[
        Step(
            (_FIRST - left, _SECOND - left),
            1,
            "decoding gives other logits than transformers' forward pass",
        )
        for left in reversed(range(NUM_DECODED))
    ],
)
_CACHED = (
    "a prompt that is cut elsewhere, or goes on from the prefix cache, gives other logits than "
    "transformers' forward pass"
)
COMPARED = [
    [
        *range(end - NUM_COMPARED, end),
        *range(length - NUM_DECODED - NUM_COMPARED, length),
    ]
    for end, length in zip(FIRST_CHUNK_ENDS, LENGTHS, strict=True)
]
"""Tokens of each sequence whose logits are compared: the last ones of each step."""


class _SmallEngine:
    """Steps of a forward pass with a cache of its own: all its blocks are free at first."""

    def __init__(self, forward: Forward, cache: KVCache) -> None:
        self._forward = forward
        self._num_groups = len(cache.groups)
        self._kv = KVCacheManager(
            _NUM_BLOCKS, BLOCK_SIZE, enable_prefix_caching=True, windows=cache.windows
        )
        self._inputs = ModelInputs(BLOCK_SIZE)  # a decode step goes on from the one before

    def sequence(self, prompt: list[int]) -> Sequence:
        """A sequence of this engine."""
        request = EngineRequest(
            request_id="proof", prompt_token_ids=tuple(prompt), params=SamplingParams(max_tokens=1)
        )
        return Sequence(request, seed=0, num_groups=self._num_groups)

    def step(
        self, sequences: Items[Sequence], ends: Items[int], num_wanted: Items[int]
    ) -> torch.Tensor:
        """Compute each sequence up to its end; return the logits of so many of its last tokens."""
        scheduled: list[tuple[Sequence, int]] = []
        wanted: list[int] = []
        for sequence, end, number in zip(sequences, ends, num_wanted, strict=True):
            self._kv.reuse_cached(sequence)
            self._kv.allocate(sequence)
            self._kv.cache_blocks(sequence, end)
            scheduled.append((sequence, end - sequence.num_computed_tokens))
            num_tokens = sum(count for _, count in scheduled)
            wanted += range(num_tokens - number, num_tokens)
        batch = self._inputs.of(scheduled, wanted, wants_best=False)
        with torch.inference_mode():
            logits = self._forward(batch).values.float()
        for sequence, count in scheduled:
            sequence.num_computed_tokens += count
        return logits


def run_steps(
    forward_over: Callable[[AttentionBackend], Forward],
    factory: BackendFactory,
    layers: Items[LayerSpec],
    tokens: list[list[int]],
    dtype: torch.dtype,
    device: torch.device,
) -> Iterator[tuple[str, list[slice], torch.Tensor]]:
    """Compute each step, with a small cache of ``dtype`` on ``device``.

    ``forward_over`` makes the forward pass over the cache. Yields the step's finding, the COMPARED
    tokens of each sequence whose logits it has, and the logits.
    """
    cache = KVCache.small(
        layers, _NUM_BLOCKS, max(LENGTHS), block_size=BLOCK_SIZE, dtype=dtype, device=device
    )
    forward = forward_over(cache.attention(factory))
    yield from _packed(_SmallEngine(forward, cache), tokens)
    yield from _cut_elsewhere(_SmallEngine(forward, cache), tokens[0])


def _packed(
    engine: _SmallEngine, tokens: list[list[int]]
) -> Iterator[tuple[str, list[slice], torch.Tensor]]:
    sequences = [engine.sequence(ids) for ids in tokens]
    starts = [0] * len(sequences)
    for step in STEPS:
        logits = engine.step(sequences, step.ends, [step.num_compared] * len(sequences))
        rows = [slice(at, at + step.num_compared) for at in starts]
        starts = [row.stop for row in rows]
        yield step.finding, rows, logits


def _cut_elsewhere(
    engine: _SmallEngine, tokens: list[int]
) -> Iterator[tuple[str, list[slice], torch.Tensor]]:
    """A prompt up to another place, and then all of it on the blocks that are cached of that."""
    nothing, num_rows = slice(0, 0), len(COMPARED[0])
    row = COMPARED[0].index(CUT_ELSEWHERE - 1)
    logits = engine.step([engine.sequence(tokens)], [CUT_ELSEWHERE], [1])
    yield _CACHED, [slice(row, row + 1), nothing], logits
    logits = engine.step([engine.sequence(tokens)], [len(tokens)], [num_rows - row])
    yield _CACHED, [slice(row, num_rows), nothing], logits


def prompts(vocab_size: int) -> list[list[int]]:
    """Fixed tokens; the first block is the same in all."""
    first = [(i * 7919 + 13) % vocab_size for i in range(BLOCK_SIZE)]
    return [
        first + [(i * 104729 + 31 * n + 17) % vocab_size for i in range(BLOCK_SIZE, length)]
        for n, length in enumerate(LENGTHS)
    ]


def padded(tokens: list[list[int]]) -> torch.Tensor:
    """The ids of the prompts for one pass, ``[num_prompts, longest]``.

    A shorter one is padded behind its end, where causal attention does not see it.
    """
    length = max(map(len, tokens))
    return torch.tensor([[*ids, *ids[: length - len(ids)]] for ids in tokens])
