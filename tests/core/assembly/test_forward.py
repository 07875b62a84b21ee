"""Outputs are handed over when the layers compute."""

from __future__ import annotations

from typing import Any

import pytest
from core.fusion.cpu.decoder import FusedDecoder

from core.assembly import forward
from core.build import LoadedEngine, load_engine
from core.contract.config import EngineConfig, ModelConfig
from core.kernels.cpu.lent import LentCore
from core.kernels.cpu.library import kernels
from tests.support.builders import make_request
from tests.support.each import each

pytestmark = pytest.mark.skipif(kernels() is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def loaded() -> LoadedEngine:
    return load_engine(ModelConfig(device="cpu"), EngineConfig(max_model_len=64))


def test_the_outputs_of_a_step_are_handed_over_right_before_the_kernel(
    loaded: LoadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, events = loaded.engine, []
    run = FusedDecoder.run

    def compute(self: FusedDecoder, *args: Any) -> None:
        events.append("prepared")
        run(self, *args)
        events.append("computed")

    monkeypatch.setattr(FusedDecoder, "run", compute)
    assert engine.timer.hand_over.may_wait
    engine.add(make_request(range(5), max_tokens=3, ignore_eos=True))
    while engine.has_work:
        engine.timer.hand_over.keep(events.append, "handed over")
        engine.step()
    assert events == ["prepared", "handed over", "computed"] * 3


@each("cpus, lends", [({0}, True), ({0, 1}, True), ({0, 1, 2}, False)])
def test_a_core_is_lent_only_if_all_compute(
    loaded: LoadedEngine, monkeypatch: pytest.MonkeyPatch, cpus: set[int], lends: bool
) -> None:
    monkeypatch.setattr(forward.torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(forward.os, "sched_getaffinity", lambda _pid: cpus)
    runner = loaded.engine._pipeline._runner
    runner.timer.hand_over.lender = None
    forward.connect_hand_over(runner._forward.model, runner)
    assert isinstance(runner.timer.hand_over.lender, LentCore) == lends
