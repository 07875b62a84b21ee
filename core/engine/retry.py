"""StepRetry: runs a failed step again in halves, so that only the guilty requests end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.engine.failures import FailureHandler
from core.engine.pipeline import CollectedStep, StepPipeline
from core.kv.manager import KVCacheManager
from core.scheduler import ScheduledSequence
from core.state.sequence import Sequence


class StepRetry:
    """Runs the sequences of a failed step again in halves, down to single sequences.

    A sequence is guilty if a step of it alone fails. The others lose nothing: the step that
    failed has moved no sequence on, a repetition writes the same keys and values to the same
    slots, and a draw depends only on seed and position. If the first that fails alone comes before
    any success, a canary decides whether it is to blame or the engine. A step of n sequences costs
    at most 2 n - 1 more launches and a canary. Core thread only.
    """

    def __init__(
        self, pipeline: StepPipeline, failures: FailureHandler, kv: KVCacheManager
    ) -> None:
        self._pipeline = pipeline
        self._failures = failures
        self._kv = kv

    def run(self, steps: Iterator[CollectedStep]) -> Iterator[CollectedStep]:
        """Yield steps that succeeded, and steps of one guilty sequence with their error.

        The caller must commit each step before it asks for the next one. Raises the error of a
        step if the engine cannot continue.
        """
        for step in steps:
            if step.is_void:
                yield from self._again([self._retracted(step.scheduled)])
            elif step.error is not None:
                yield from self._find_guilty(step, step.error)
            else:
                self._failures.step_succeeded()
                yield step

    def _find_guilty(self, step: CollectedStep, error: BaseException) -> Iterator[CollectedStep]:
        """Run the halves of a failed step, then decide whether the engine still works."""
        self._failures.step_failed(error)
        works: bool | None = None
        for part in self._parts(step, error):
            if part.error is None:
                works = True
            elif works is None:
                works = self._canary_succeeds()
            yield replace(part, is_blameless=part.error is not None and works is False)
        if works is None:
            works = self._canary_succeeds()
        if works:
            self._failures.step_succeeded()
        else:
            self._failures.count(error)

    def _parts(self, step: CollectedStep, error: BaseException) -> Iterator[CollectedStep]:
        """Run the halves of a failed step; a step of one sequence is not repeated."""
        items = self._retracted(step.scheduled)
        if len(step.scheduled) > 1:
            yield from self._again(_halves(items))
        elif items:
            yield CollectedStep(items, [], error)

    def _again(self, parts: list[list[ScheduledSequence]]) -> Iterator[CollectedStep]:
        """Run each part, and the halves of each that fails.

        The order is kept: later sequences may read blocks that earlier ones compute.
        """
        pending = parts[::-1]
        while pending:
            items = self._live(pending.pop())
            if not items:
                continue
            step = self._pipeline.run_now(items)
            if step.error is None:
                yield step
                continue
            self._failures.launch_failed(step.error)
            items = self._retracted(items)
            if len(items) == 1:
                yield CollectedStep(items, [], step.error)
            else:
                pending += _halves(items)[::-1]

    def _retracted(self, items: list[ScheduledSequence]) -> list[ScheduledSequence]:
        """The items that are not stale, as they were before their launch."""
        return [item.retracted() for item in self._live(items)]

    def _live(self, items: list[ScheduledSequence]) -> list[ScheduledSequence]:
        """The items that are not stale. The blocks that the others would fill stay unfilled."""
        while stale := [item for item in items if item.is_stale]:
            items = [item for item in items if not item.is_stale]
            for item in stale:  # makes those stale that share such a block
                self._failures.distrust(item)
        return items

    def _canary_succeeds(self) -> bool | None:
        """Whether the engine can still compute one token, of a sequence of its own.

        None if no block is free for it, as when one sequence holds them all.
        """
        request = EngineRequest(
            request_id="canary",
            prompt_token_ids=(0,),
            params=SamplingParams(max_tokens=1, temperature=0.0),
        )
        sequence = Sequence(request, seed=0, num_groups=self._kv.num_groups)
        if not self._kv.allocate(sequence):
            return None
        try:
            step = self._pipeline.run_now([ScheduledSequence(sequence, 1, samples=True)])
        finally:
            self._kv.free(sequence)
        return step.error is None


def _halves(items: list[ScheduledSequence]) -> list[list[ScheduledSequence]]:
    middle = (len(items) + 1) // 2
    return [items[:middle], items[middle:]]
