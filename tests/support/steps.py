"""A scheduler driven without an engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from core.kv.window_group import WindowSize
from core.scheduler import SchedulerOutput
from core.state.sequence import Sequence, Status
from tests.support.builders import blocks_of, make_kv, make_scheduler, make_sequence
from tests.support.scripted import CacheModel


class Steps:
    """A scheduler over a KV cache model, driven as the engine does and checked in every step."""

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        enable_prefix_caching: bool = True,
        windows: Iterable[WindowSize] = (),
        **limits: Any,
    ) -> None:
        windows = list(windows)
        self.kv = make_kv(
            num_blocks,
            block_size,
            enable_prefix_caching=enable_prefix_caching,
            windows=windows,
        )
        self.scheduler = make_scheduler(self.kv, **limits)
        self.cache = CacheModel(block_size, [size.window for size in windows])
        self.block_size = block_size

    def add(self, prompt: Iterable[int], name: str, **fields: Any) -> Sequence:
        sequence = make_sequence(prompt, request_id=name, num_groups=self.kv.num_groups, **fields)
        self.scheduler.add(sequence)
        return sequence

    def schedule(self) -> SchedulerOutput:
        scheduler_output = self.scheduler.schedule()
        for item in scheduler_output.scheduled:
            assert item.sequence.status is Status.RUNNING
            assert 1 <= item.num_tokens <= item.sequence.num_pending_tokens
            assert len(blocks_of(item.sequence)) == -(-item.sequence.num_tokens // self.block_size)
        scheduled = {item.sequence for item in scheduler_output.scheduled}
        for sequence in self.scheduler:
            if sequence not in scheduled:  # none of its blocks is computed by this step
                self.cache.check(sequence, sequence.num_computed_tokens)
        return scheduler_output

    def commit(self, scheduler_output: SchedulerOutput) -> None:
        seen = self.cache.compute(scheduler_output)
        for item, last in zip(scheduler_output.scheduled, seen, strict=True):
            sequence, samples = item.sequence, item.samples
            sequence.num_computed_tokens += item.num_tokens
            if samples:
                sequence.token_ids.append(last % 3)
                if sequence.num_output_tokens >= sequence.params.max_tokens:
                    self.scheduler.finish(sequence)
        self.scheduler.check()

    def step(self) -> dict[str, int]:
        """Run a step; returns the number of computed tokens by request id, in order."""
        scheduler_output = self.schedule()
        self.commit(scheduler_output)
        return {item.sequence.request_id: item.num_tokens for item in scheduler_output.scheduled}
