"""The server on the built-in model with a runner that fails on demand.

``python -m compat_tests.support.faulty_server [flags of serve]``. A request asks for its fault
with its ``seed``, so that everything between the socket and the runner is the real thing.
"""

import sys
import threading
from collections.abc import Sequence
from dataclasses import replace

import torch

from compat_tests.support.faults import (
    BREAK,
    FAIL_AFTER,
    FAIL_AT_ONCE,
    FAIL_MIDWAY,
    NEVER_ID,
    NO_NUMBERS,
    STALL,
    STALL_SECONDS,
)
from core.assembly.build import LoadedEngine, load_engine
from core.batch.logits import Logits
from core.batch.model_input import ModelInput
from core.contract.config import EngineConfig, ModelConfig
from core.engine.pipeline import InFlight, Runner
from core.scheduler import SchedulerOutput


class FaultyRunner:
    """Wraps the real runner. Core thread only."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._forward = runner._forward  # type: ignore[attr-defined]
        self._rows_without_numbers: list[int] = []
        self._is_broken = False
        runner._forward = self.forward  # type: ignore[attr-defined]

    def clear(self, block_ids: Sequence[Sequence[int]]) -> None:
        self._runner.clear(block_ids)

    def not_finite(self, block_ids: Sequence[int]) -> list[int]:
        return self._runner.not_finite(block_ids)

    def launch(self, scheduler_output: SchedulerOutput) -> InFlight:
        self._rows_without_numbers = []
        self._is_broken |= any(i.sequence.params.seed == BREAK for i in scheduler_output.scheduled)
        if self._is_broken:
            raise RuntimeError("asked to fail from now on")
        for row, item in enumerate(scheduler_output.scheduled):
            has_enough = item.sequence.num_output_tokens >= FAIL_AFTER
            match item.sequence.params.seed:
                case seed if seed == FAIL_AT_ONCE:
                    raise RuntimeError("asked to fail at once")
                case seed if seed == FAIL_MIDWAY and has_enough:
                    raise RuntimeError("asked to fail midway")
                case seed if seed == STALL and item.sequence.num_output_tokens == FAIL_AFTER:
                    threading.Event().wait(STALL_SECONDS)
                case seed if seed == NO_NUMBERS and has_enough:
                    self._rows_without_numbers.append(row)
        return self._runner.launch(scheduler_output)

    def forward(self, batch: ModelInput) -> Logits:
        wanting = replace(batch, wants_best=False, layout=None)  # best tokens alone have no logits
        logits: torch.Tensor = self._forward(wanting).values.clone()
        logits[:, NEVER_ID] = -torch.inf
        for row in self._rows_without_numbers:
            logits[row] = torch.nan
        return Logits(logits)


def load() -> LoadedEngine:
    loaded = load_engine(ModelConfig(), EngineConfig(max_model_len=1024))
    pipeline = loaded.engine._pipeline
    pipeline._runner = FaultyRunner(pipeline._runner)
    return loaded


if __name__ == "__main__":
    from server.cli.main import run
    from server.cli.program import exit_process
    from server.settings.settings import parse_settings

    exit_process(run(parse_settings(["serve", *sys.argv[1:]]), load=load))
