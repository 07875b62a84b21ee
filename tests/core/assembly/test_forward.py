"""Outputs are handed over when the layers compute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from core.assembly import forward
from core.kernels.cpu.library import kernels
from core.kernels.cpu.threads import LentCore
from tests.support.builders import make_request
from tests.support.described import assembled, loaded
from tests.support.each import each

pytestmark = pytest.mark.skipif(kernels() is None, reason="no C++ compiler")


def test_the_outputs_of_a_step_are_handed_over_right_before_the_kernel() -> None:
    model = loaded("llama")
    engine, executor, events = assembled(model).engine, model.executor, []
    assert executor is not None
    begin = executor.begin

    def prepared() -> None:
        events.append("prepared")
        begin()
        events.append("begun")

    @contextmanager
    def times() -> Iterator[None]:
        events.append("computing")
        yield
        events.append("computed")

    executor.begin = prepared
    assert engine.timer.hand_over.may_wait
    engine.add(make_request(range(5), max_tokens=3, ignore_eos=True))
    while engine.has_work:
        engine.timer.hand_over.keep(events.append, "handed over")
        executor.times = times()
        engine.step()
    assert events == ["prepared", "handed over", "begun", "computing", "computed"] * 3


@each("cpus, lends", [({0}, True), ({0, 1}, True), ({0, 1, 2}, False)])
def test_a_core_is_lent_only_if_all_compute(
    monkeypatch: pytest.MonkeyPatch, cpus: set[int], lends: bool
) -> None:
    monkeypatch.setattr(forward.torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(forward.os, "sched_getaffinity", lambda _pid: cpus)
    model = loaded("llama")
    engine, executor = assembled(model).engine, model.executor
    assert executor is not None
    lender = engine.timer.hand_over.lender
    assert isinstance(lender, LentCore) == lends
    assert lender is None or lender is executor.lent
