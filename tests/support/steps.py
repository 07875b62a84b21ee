"""A scheduler in the hands of an engine that computes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from core.scheduler import SchedulerOutput
from core.sequence import Sequence, Status
from tests.support.builders import blocks_of, make_kv, make_scheduler, make_sequence
from tests.support.scripted import CacheModel


class Steps:
    """A scheduler over a modelled cache, driven as the engine drives it, checked every step."""

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        enable_prefix_caching: bool = True,
        **limits: int | None,
    ) -> None:
        self.kv = make_kv(num_blocks, block_size, enable_prefix_caching=enable_prefix_caching)
        self.scheduler = make_scheduler(self.kv, **limits)
        self.cache = CacheModel(block_size)
        self.block_size = block_size

    def add(self, prompt: Iterable[int], name: str, **fields: Any) -> Sequence:
        sequence = make_sequence(prompt, request_id=name, **fields)
        self.scheduler.add(sequence)
        return sequence

    def plan(self) -> SchedulerOutput:
        plan = self.scheduler.schedule()
        for item in plan.scheduled:
            assert item.sequence.status is Status.RUNNING
            assert 1 <= item.num_tokens <= item.sequence.num_pending_tokens
            assert len(blocks_of(item.sequence)) == -(-item.sequence.num_tokens // self.block_size)
        planned = {item.sequence for item in plan.scheduled}
        for sequence in self.scheduler:
            if sequence not in planned:  # then nothing that it holds waits for this step
                self.cache.check(sequence, sequence.num_computed_tokens)
        return plan

    def commit(self, plan: SchedulerOutput) -> None:
        seen = self.cache.compute(plan)
        for item, last in zip(plan.scheduled, seen, strict=True):
            sequence, samples = item.sequence, item.samples
            sequence.num_computed_tokens += item.num_tokens
            if samples:
                sequence.token_ids.append(last % 3)
                if sequence.num_output_tokens >= sequence.params.max_tokens:
                    self.scheduler.finish(sequence)
        self.scheduler.check()

    def step(self) -> dict[str, int]:
        """Run a step; gives how many tokens it computed of whom, in order."""
        plan = self.plan()
        self.commit(plan)
        return {item.sequence.request_id: item.num_tokens for item in plan.scheduled}
