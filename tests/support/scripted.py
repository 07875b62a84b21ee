"""A runner and a tokenizer with scripted tokens, over a KV cache model that checks every access.

Token ids below 256 are bytes of text, so ``list(b"hello")`` is a prompt and a script.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as AnySequence
from typing import Any

from core.contract.messages import PromptLogprobs, StepOutput, TokenLogprob
from core.engine.engine import Engine
from core.kv.manager import KVCacheManager
from core.kv.window_group import WindowSize
from core.sampling.result import RowFailure, SampledTokens, SequenceResult
from core.scheduler import ScheduledSequence, SchedulerOutput
from core.state.sequence import Sequence
from core.text.detokenizer import ByteDetokenizer
from tests.support.builders import make_kv, make_request, make_scheduler

EOS = 256
"""The model's EOS token. Its text is ``<eos>``, so tests see it if it is output."""

POISON = 257
"""A token that makes every detokenizer raise."""

MARK = 258
"""Another special token, of the text ``<mark>``."""

NUM_TOKEN_IDS = 1000
"""Ids that prompts may have."""

_TEXTS = {EOS: b"<eos>", MARK: b"<mark>"}


class CacheModel:
    """The KV cache as a dictionary from slot to what was written, checked when it is read.

    Instead of keys and values a slot holds a fingerprint of all tokens up to its own, on which the
    keys and values depend.
    """

    def __init__(self, block_size: int, windows: AnySequence[int] = ()) -> None:
        """``windows`` are those of the groups after the full one."""
        self._block_size = block_size
        self._windows = [None, *windows]
        self._slots: dict[tuple[int, int, int], int] = {}

    def compute(
        self, scheduler_output: SchedulerOutput, in_flight: Mapping[Sequence, int] = {}
    ) -> list[int]:
        """Write the step, then read all contexts; returns the last fingerprint of each sequence.

        ``in_flight`` are the token ids that only the device knows.
        """
        items = scheduler_output.scheduled
        prints = [_fingerprints(item.sequence, in_flight) for item in items]
        written = set()
        for item, own in zip(items, prints, strict=True):
            for group in range(len(self._windows)):
                for position in range(item.num_computed_tokens, item.end):
                    slot = self._slot(item.sequence, position, group)
                    assert slot not in written, "written twice"
                    written.add(slot)
                    self._slots[slot] = own[position]
        for item, own in zip(items, prints, strict=True):
            self._check(item.sequence, own[: item.end], item.num_computed_tokens)
        return [own[item.end - 1] for item, own in zip(items, prints, strict=True)]

    def check(self, sequence: Sequence, context: int) -> None:
        """Assert that a next query finds the first ``context`` tokens of a sequence."""
        self._check(sequence, _fingerprints(sequence)[:context], context)

    def _check(self, sequence: Sequence, expected: list[int], first_query: int) -> None:
        """Windows end at their own token, so ``first_query`` sees the earliest one."""
        for group, window in enumerate(self._windows):
            first = 0 if window is None else max(0, first_query - window + 1)
            slots = [self._slot(sequence, p, group) for p in range(first, len(expected))]
            assert [self._slots.get(slot) for slot in slots] == expected[first:], "not written"

    def _slot(self, sequence: Sequence, position: int, group: int) -> tuple[int, int, int]:
        index, offset = divmod(position, self._block_size)
        table = sequence.block_tables[group]
        assert index >= table.num_released
        return group, int(table.view()[index]), offset


def _fingerprints(sequence: Sequence, in_flight: Mapping[Sequence, int] = {}) -> list[int]:
    token_ids = list(sequence.token_ids)
    if sequence.num_in_flight and in_flight:
        token_ids.append(in_flight[sequence])
    value, prints = 0, []
    for token_id in token_ids:
        value = hash((value, token_id))
        prints.append(value)
    return prints


class ScriptedRunner:
    """Samples ``scripts[r]`` for request ``r``, or letters that depend on the context.

    The next launches raise ``failures``, one each, and the next collects ``late_failures``. Every
    launch with a request of ``guilty`` raises its error, and every collect with one of
    ``guilty_late``; so does one with a token of ``guilty_tokens`` in a prompt. With ``is_broken``
    every launch raises. Requests of ``failed_rows`` get NaN, in the blocks that they write too;
    those of ``masked_rows`` have no allowed token. The masks of ``late_rows`` are late in so many
    steps, of those that would sample; they must land. A step that samples for ``bound_ids`` must
    land before the next launch.
    """

    def __init__(self, block_size: int, windows: AnySequence[int] = ()) -> None:
        self.scripts: dict[str, AnySequence[int]] = {}
        self.failures: list[BaseException | None] = []
        self.late_failures: list[BaseException | None] = []
        self.guilty: dict[str, BaseException] = {}
        self.guilty_late: dict[str, BaseException] = {}
        self.guilty_tokens: dict[int, BaseException] = {}
        self.is_broken = False
        self.failed_rows: set[str] = set()
        self.masked_rows: set[str] = set()
        self.late_rows: dict[str, int] = {}
        self.nan_blocks: set[int] = set()
        self.bound_ids: set[str] = set()
        self.batches: list[dict[str, int]] = []
        """For each step, the number of computed tokens by request id."""
        self.fault: AssertionError | None = None
        self.num_in_flight = 0
        """Steps launched and not collected."""
        self.most_in_flight = 0
        self.cleared: list[int] = []
        """Block ids passed to ``clear``."""
        self._block_size = block_size
        self.bases = [0]
        """Numbers of the first blocks of the groups."""
        self._cache = CacheModel(block_size, windows)
        self._last_tokens: dict[Sequence, int] = {}

    def clear(self, block_ids: list[int]) -> None:
        self.cleared += block_ids
        self.nan_blocks -= set(block_ids)

    def not_finite(self, block_ids: list[int]) -> list[int]:
        return [block_id for block_id in block_ids if block_id in self.nan_blocks]

    def launch(self, scheduler_output: SchedulerOutput) -> ScriptedStep:
        items = scheduler_output.scheduled
        self.batches.append({item.sequence.request_id: item.num_tokens for item in items})
        if self.failures and (failure := self.failures.pop(0)) is not None:
            raise failure
        if self.is_broken:
            raise RuntimeError("every step fails")
        for item in items:
            self._raise_if_guilty(item.sequence)
        try:
            seen = self._cache.compute(scheduler_output, self._last_tokens)
            results = [
                SequenceResult(
                    self._sample(item.sequence, last) if item.samples else None,
                    self._scores(item),
                )
                for item, last in zip(items, seen, strict=True)
            ]
        except AssertionError as fault:  # the engine treats it as a failed step
            self.fault = fault
            raise
        self._last_tokens = {
            item.sequence: self._on_device(result.sampled)
            for item, result in zip(items, results, strict=True)
            if result.sampled is not None
        }
        self.num_in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.num_in_flight)
        ids = {item.sequence.request_id for item in items if item.samples}
        late = [self.guilty_late[r] for r in self.batches[-1] if r in self.guilty_late]
        self._spread_nan(items)
        return ScriptedStep(
            self, results, must_land=bool(ids & self.bound_ids), error=late[0] if late else None
        )

    def _raise_if_guilty(self, sequence: Sequence) -> None:
        if (error := self.guilty.get(sequence.request_id)) is not None:
            raise error
        for token_id, error in self.guilty_tokens.items():
            if token_id in sequence.request.prompt_token_ids:
                raise error

    def _spread_nan(self, items: AnySequence[ScheduledSequence]) -> None:
        for item in items:
            if item.sequence.request_id in self.failed_rows:
                first = item.num_computed_tokens // self._block_size
                end = -(-item.end // self._block_size)
                for base, table in zip(self.bases, item.sequence.block_tables, strict=True):
                    self.nan_blocks.update((base + table.view()[first:end]).tolist())

    def _sample(self, sequence: Sequence, seen: int) -> SampledTokens:
        place = sequence.num_sampled_tokens
        if sequence.request_id in self.failed_rows:
            return SampledTokens([], failure=RowFailure.NAN)
        if sequence.request_id in self.masked_rows:
            return SampledTokens([], failure=RowFailure.MASKED)
        num_late = self.late_rows.get(sequence.request_id, 0)
        sequence.awaits_mask = num_late > 0
        if num_late:
            self.late_rows[sequence.request_id] = num_late - 1
            return SampledTokens([], failure=RowFailure.MASKED)
        script = self.scripts.get(sequence.request_id)
        token_id = ord("a") + seen % 26 if script is None else [*script, EOS][place]
        logprobs = None
        if sequence.params.logprobs is not None:
            logprobs = [TokenLogprob(token_id, -float(place))]
        return SampledTokens([token_id], logprobs)

    def _on_device(self, sampled: SampledTokens) -> int:
        return 0 if sampled.failure else sampled.token_ids[0]

    def _scores(self, item: ScheduledSequence) -> PromptLogprobs | None:
        sequence = item.sequence
        if sequence.params.prompt_logprobs is None:
            return None
        first = item.num_computed_tokens + 1
        end = min(first + item.num_tokens, sequence.num_prompt_tokens)
        token_ids = tuple(sequence.token_ids[p] for p in range(first, end))
        return PromptLogprobs(
            token_ids, array("d", [-float(p) for p in range(first, end)]).tobytes()
        )


class ScriptedStep:
    """A step in flight with its results."""

    def __init__(
        self,
        runner: ScriptedRunner,
        results: list[SequenceResult],
        *,
        must_land: bool,
        error: BaseException | None = None,
    ) -> None:
        self.must_land = must_land
        self._error = error
        self._runner = runner
        self._results = results

    def collect(self) -> list[SequenceResult]:
        runner = self._runner
        runner.num_in_flight -= 1
        if runner.late_failures and (failure := runner.late_failures.pop(0)) is not None:
            raise failure
        if self._error is not None:
            raise self._error
        return self._results


class ScriptedTokenizer:
    """Makes byte detokenizers and records the prompts they were primed with."""

    def __init__(self) -> None:
        self.primed_with: list[tuple[int, ...]] = []

    def detokenizer(
        self, prompt_token_ids: AnySequence[int], *, skip_special_tokens: bool = True
    ) -> ByteDetokenizer:
        self.primed_with.append(tuple(prompt_token_ids))
        tail = b"".join(bytes_of(t) for t in prompt_token_ids[-3:])
        return ByteDetokenizer(
            bytes_of,
            hidden_ids=frozenset(_TEXTS) if skip_special_tokens else frozenset(),
            prompt_tail=tail if tail[-1:] > b"\x7f" else b"",
        )

    def special_ids_of(self, texts: Iterable[str]) -> dict[int, str]:
        found = {token_id: text.decode() for token_id, text in _TEXTS.items()}
        return {token_id: text for token_id, text in found.items() if text in texts}


def bytes_of(token_id: int) -> bytes:
    if token_id == POISON:
        raise ValueError("this token has no text")
    return _TEXTS[token_id] if token_id in _TEXTS else bytes([token_id])


class Rig:
    """An engine with scripted parts, checked after every step."""

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        max_num_seqs: int = 8,
        max_num_batched_tokens: int = 64,
        enable_prefix_caching: bool = True,
        max_step_seconds: float | None = None,
        keys_per_row: float = math.inf,
        async_scheduling: bool = False,
        windows: AnySequence[WindowSize] = (),
    ) -> None:
        self.kv: KVCacheManager = make_kv(
            num_blocks, block_size, enable_prefix_caching=enable_prefix_caching, windows=windows
        )
        self.scheduler = make_scheduler(
            self.kv,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_step_seconds=max_step_seconds,
            keys_per_row=keys_per_row,
        )
        self.runner = ScriptedRunner(block_size, [size.window for size in windows])
        self.runner.bases = self.kv._bases
        self.tokenizer: Any = ScriptedTokenizer()
        self.engine = Engine(
            self.runner,
            self.scheduler,
            self.kv,
            self.tokenizer,
            num_token_ids=NUM_TOKEN_IDS,
            eos_token_ids=frozenset({EOS}),
            seed=0,
            async_scheduling=async_scheduling,
        )

    def add(
        self,
        request_id: str,
        script: Iterable[int] | None = None,
        *,
        prompt: Iterable[int] = b"say",
        **fields: Any,
    ) -> None:
        if script is not None:
            self.runner.scripts[request_id] = list(script)
        self.engine.add(make_request(prompt, request_id=request_id, **fields))

    def outputs(self) -> list[StepOutput]:
        """Run a step. With async scheduling it may have two outputs for a request."""
        outputs = self.engine.step()
        self.engine.check()
        assert self.runner.fault is None, self.runner.fault
        return outputs

    def step(self) -> dict[str, StepOutput]:
        """Run a step; returns its outputs by request id."""
        outputs = self.outputs()
        assert len({output.request_id for output in outputs}) == len(outputs)
        return {output.request_id: output for output in outputs}

    def run(self, *, between: Callable[[int], None] = lambda _n: None) -> dict[str, Answer]:
        """Step until all requests have ended; returns the answers by request id."""
        answers: dict[str, Answer] = {}
        num_steps = 0
        while self.engine.has_work:
            for output in self.outputs():
                answers.setdefault(output.request_id, Answer()).take(output)
            num_steps += 1
            assert num_steps < 5_000, "the engine does not finish"
            between(num_steps)
        return answers

    @property
    def num_used_blocks(self) -> int:
        return self.kv.num_blocks - self.kv.num_free_blocks


class Answer:
    """All outputs of one request, in order."""

    def __init__(self) -> None:
        self.outputs: list[StepOutput] = []

    def take(self, output: StepOutput) -> None:
        assert not (self.outputs and self.last.is_last), "output after the last one"
        self.outputs.append(output)

    @property
    def last(self) -> StepOutput:
        return self.outputs[-1]

    @property
    def text(self) -> str:
        return "".join(output.text for output in self.outputs)

    @property
    def token_ids(self) -> list[int]:
        return [token_id for output in self.outputs for token_id in output.token_ids]
