"""A runner and a tokenizer whose every token is known beforehand, over a cache that is checked.

Token ids below 256 are bytes of text, so ``list(b"hello")`` is a prompt and a script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as AnySequence
from typing import Any

from core.contract.messages import StepOutput, TokenLogprob
from core.engine import Engine
from core.kv.manager import KVCacheManager
from core.sampling.result import SampledTokens, SequenceResult
from core.scheduler import ScheduledSequence, SchedulerOutput
from core.sequence import Sequence
from core.text.detokenizer import ByteDetokenizer
from tests.support.builders import make_kv, make_request, make_scheduler

EOS = 256
"""The model's end token; its text is ``<eos>``, so that a leak is seen."""

POISON = 257
"""A token that no detokenizer survives."""

_TEXTS = {EOS: b"<eos>"}


class CacheModel:
    """The cache as a dictionary: what was written to which slot, and is it what will be read?

    In place of keys and values a slot holds a fingerprint of all tokens up to its own, which is
    exactly what they depend on.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._slots: dict[tuple[int, int], int] = {}

    def compute(self, plan: SchedulerOutput, in_flight: Mapping[Sequence, int] = {}) -> list[int]:
        """Write the step, then read all contexts; gives what each sequence's last token saw.

        ``in_flight`` are the tokens that only the device knows.
        """
        prints = [_fingerprints(item.sequence, in_flight) for item in plan.scheduled]
        for item, own in zip(plan.scheduled, prints, strict=True):
            for position in range(item.num_computed_tokens, item.end):
                self._slots[self._slot(item.sequence, position)] = own[position]
        for item, own in zip(plan.scheduled, prints, strict=True):
            self._check(item.sequence, own[: item.end])
        return [own[item.end - 1] for item, own in zip(plan.scheduled, prints, strict=True)]

    def check(self, sequence: Sequence, context: int) -> None:
        """Assert that the first ``context`` tokens of a sequence are in its blocks."""
        self._check(sequence, _fingerprints(sequence)[:context])

    def _check(self, sequence: Sequence, expected: list[int]) -> None:
        read = [self._slots.get(self._slot(sequence, p)) for p in range(len(expected))]
        assert read == expected, "not written, or by another one"

    def _slot(self, sequence: Sequence, position: int) -> tuple[int, int]:
        index, offset = divmod(position, self._block_size)
        return int(sequence.block_table.view()[index]), offset


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
    """Gives request ``r`` the tokens of ``scripts[r]``, or letters that depend on its context.

    ``failures`` are raised by the coming launches, one each, ``late_failures`` when the coming
    steps are collected; ``broken_ids`` by every launch with such a request in it; requests of
    ``failed_rows`` get rows without a usable token. Steps that sample for ``bound_ids`` must land
    before the next launch.
    """

    def __init__(self, block_size: int) -> None:
        self.scripts: dict[str, AnySequence[int]] = {}
        self.failures: list[BaseException | None] = []
        self.late_failures: list[BaseException | None] = []
        self.broken_ids: set[str] = set()
        self.failed_rows: set[str] = set()
        self.bound_ids: set[str] = set()
        self.plans: list[dict[str, int]] = []
        """What each step computed: request id to number of tokens."""
        self.fault: AssertionError | None = None
        self.num_in_flight = 0
        """Steps that were launched and not collected."""
        self.most_in_flight = 0
        self.cleared: list[int] = []
        """Blocks that were to be overwritten."""
        self._cache = CacheModel(block_size)
        self._last_tokens: dict[Sequence, int] = {}

    def clear(self, block_ids: list[int]) -> None:
        """Note what a real runner would overwrite."""
        self.cleared += block_ids

    def launch(self, plan: SchedulerOutput) -> ScriptedStep:
        self.plans.append({item.sequence.request_id: item.num_tokens for item in plan.scheduled})
        if self.failures and (failure := self.failures.pop(0)) is not None:
            raise failure
        if self.broken_ids & self.plans[-1].keys():
            raise RuntimeError("this request breaks every step")
        try:
            seen = self._cache.compute(plan, self._last_tokens)
            results = [
                SequenceResult(
                    self._sample(item.sequence, last) if item.samples else None,
                    self._scores(item),
                )
                for item, last in zip(plan.scheduled, seen, strict=True)
            ]
        except AssertionError as fault:  # to an engine this is a failed step like any other
            self.fault = fault
            raise
        self._last_tokens = {
            item.sequence: self._on_device(result.sampled)
            for item, result in zip(plan.scheduled, results, strict=True)
            if result.sampled is not None
        }
        self.num_in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.num_in_flight)
        ids = {item.sequence.request_id for item in plan.scheduled if item.samples}
        return ScriptedStep(self, results, must_land=bool(ids & self.bound_ids))

    def _sample(self, sequence: Sequence, seen: int) -> SampledTokens:
        place = sequence.num_sampled_tokens
        if sequence.request_id in self.failed_rows:
            return SampledTokens([], None, failed=True)
        script = self.scripts.get(sequence.request_id)
        token_id = ord("a") + seen % 26 if script is None else [*script, EOS][place]
        logprobs = None
        if sequence.params.logprobs is not None:
            logprobs = [TokenLogprob(token_id, -float(place))]
        return SampledTokens([token_id], logprobs)

    def _on_device(self, sampled: SampledTokens) -> int:
        return 0 if sampled.failed else sampled.token_ids[0]

    def _scores(self, item: ScheduledSequence) -> list[TokenLogprob]:
        sequence = item.sequence
        if sequence.params.prompt_logprobs is None:
            return []
        first = item.num_computed_tokens + 1
        end = min(first + item.num_tokens, sequence.num_prompt_tokens)
        return [TokenLogprob(sequence.token_ids[p], -float(p)) for p in range(first, end)]


class ScriptedStep:
    """A step in flight, whose results are known."""

    def __init__(
        self, runner: ScriptedRunner, results: list[SequenceResult], *, must_land: bool
    ) -> None:
        self.must_land = must_land
        self._runner = runner
        self._results = results

    def collect(self) -> list[SequenceResult]:
        runner = self._runner
        runner.num_in_flight -= 1
        if runner.late_failures and (failure := runner.late_failures.pop(0)) is not None:
            raise failure
        return self._results


class ScriptedTokenizer:
    """Makes real detokenizers over bytes; remembers which prompts they were primed with."""

    def __init__(self) -> None:
        self.primed_with: list[tuple[int, ...]] = []

    def detokenizer(
        self, prompt_token_ids: AnySequence[int], *, skip_special_tokens: bool = True
    ) -> ByteDetokenizer:
        self.primed_with.append(tuple(prompt_token_ids))
        tail = b"".join(bytes_of(t) for t in prompt_token_ids[-3:])
        return ByteDetokenizer(
            bytes_of,
            hidden_ids=frozenset({EOS}) if skip_special_tokens else frozenset(),
            prompt_tail=tail if tail[-1:] > b"\x7f" else b"",
        )


def bytes_of(token_id: int) -> bytes:
    if token_id == POISON:
        raise ValueError("this token has no text")
    return _TEXTS[token_id] if token_id in _TEXTS else bytes([token_id])


class Rig:
    """An engine on scripted parts, checked after every step."""

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        max_num_seqs: int = 8,
        max_num_batched_tokens: int = 64,
        enable_prefix_caching: bool = True,
        async_scheduling: bool = False,
    ) -> None:
        self.kv: KVCacheManager = make_kv(
            num_blocks, block_size, enable_prefix_caching=enable_prefix_caching
        )
        self.scheduler = make_scheduler(
            self.kv, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens
        )
        self.runner = ScriptedRunner(block_size)
        self.tokenizer: Any = ScriptedTokenizer()
        self.engine = Engine(
            self.runner,
            self.scheduler,
            self.kv,
            self.tokenizer,
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
        """Run a step; one that runs ahead may tell of two tokens of a request."""
        outputs = self.engine.step()
        self.engine.check()
        assert self.runner.fault is None, self.runner.fault
        return outputs

    def step(self) -> dict[str, StepOutput]:
        """Run a step; gives its outputs by request id."""
        outputs = self.outputs()
        assert len({output.request_id for output in outputs}) == len(outputs)
        return {output.request_id: output for output in outputs}

    def run(self, *, between: Callable[[int], None] = lambda _n: None) -> dict[str, Answer]:
        """Step until nothing is left; gives the whole answers by request id."""
        answers: dict[str, Answer] = {}
        num_steps = 0
        while self.engine.has_work:
            for output in self.outputs():
                answers.setdefault(output.request_id, Answer()).take(output)
            num_steps += 1
            assert num_steps < 5_000, "no end in sight"
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
        assert not (self.outputs and self.last.is_last), "spoke after its last word"
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
