import pytest

from core.build import load_engine
from core.contract.config import EngineConfig, ModelConfig
from core.profile_report import STAGES
from core.profiling import ScheduleTimes, StepProfile, _Timer
from tests.support.builders import make_request


@pytest.fixture(scope="module")
def profiled():
    """The built-in model's engine, its profile, and its schedule times."""
    loaded = load_engine(
        ModelConfig(dtype="float32"), EngineConfig(max_model_len=128, kv_cache_memory=2**24)
    )
    profile, times = StepProfile(), ScheduleTimes()
    profile.attach(loaded.engine)
    times.attach(loaded.engine)
    return loaded.engine, profile, times


def generate(profiled, *requests):
    engine, profile, _ = profiled
    profile.clear()
    outputs = []
    deliver = profile.timed_delivery(outputs.extend)
    for request in requests:
        engine.add(request)
    while engine.has_work:
        deliver(engine.step())
    return outputs


def test_stages_make_up_the_step(profiled):
    outputs = generate(
        profiled,
        make_request(range(10, 40), request_id="a", max_tokens=6, ignore_eos=True),
        make_request(range(50, 70), request_id="b", max_tokens=4, ignore_eos=True),
    )
    assert all(output.error is None for output in outputs)
    reports = {report.kind: report for report in profiled[1].report()}
    assert reports["prefill"].num_tokens == 50
    assert [reports[kind].num_steps for kind in ("prefill", "decode")] == [1, 5]
    assert reports["decode"].num_sequences == pytest.approx(8 / 5)
    for report in reports.values():
        stages = {stage.name: stage for stage in report.stages}
        assert tuple(stages) == STAGES
        assert all(stage.ms > 0 for stage in report.stages)
        assert sum(stage.share for stage in report.stages) == pytest.approx(1)
        assert sum(stage.ms for stage in report.stages) == pytest.approx(report.step_ms)
        assert stages["forward"].calls == stages["sampling"].calls == 1
        assert report.overhead_ms >= 0


def test_the_forward_pass_by_kinds_of_modules(profiled):
    generate(profiled, make_request(range(10, 40), max_tokens=3, ignore_eos=True))
    (prefill, decode) = sorted(profiled[1].report(), key=lambda report: -report.num_tokens)
    for report in (prefill, decode):
        forward = next(stage for stage in report.stages if stage.name == "forward")
        parts = {part.name: part for part in forward.parts}
        classes = {type(module).__name__ for module in profiled[0]._runner._forward.model.modules()}
        assert parts.keys() - classes == {"attention", "attention plan", "rest"}
        assert parts["attention"].calls >= 1
        assert sum(part.ms for part in forward.parts) == pytest.approx(forward.ms)
        assert [part.ms for part in forward.parts] == sorted(
            (part.ms for part in forward.parts), reverse=True
        )


def test_a_failed_step_leaves_no_trace(profiled, monkeypatch):
    engine, profile, _ = profiled
    backend = engine._runner._forward.backend
    plan = backend.plan

    def fail(_batch):
        raise RuntimeError("no")

    monkeypatch.setattr(backend, "plan", fail)
    (output,) = generate(profiled, make_request(max_tokens=3))
    assert output.error
    monkeypatch.setattr(backend, "plan", plan)
    generate(profiled, make_request(max_tokens=3, ignore_eos=True))
    for report in profile.report():
        assert sum(stage.share for stage in report.stages) == pytest.approx(1)


def test_an_engine_that_did_nothing(profiled):
    profiled[1].clear()
    assert profiled[1].report() == ()


def test_when_requests_were_scheduled(profiled):
    _, _, times = profiled
    generate(profiled, *(make_request(request_id=name, max_tokens=2) for name in "ab"))
    first, second = times.take("a"), times.take("b")
    assert first == second > 0
    assert times.take("a") is None
    assert times.take("nobody") is None


class Ticks(_Timer):
    """A timer whose clock the test moves."""

    time = 0

    def now(self):
        return self.time


def test_inner_calls_are_not_counted_twice():
    timer = Ticks()
    timer.begin()
    timer.enter("inputs")
    timer.time = 3
    timer.turn("results")
    with timer.measure("forward"):
        timer.time = 5
        timer.enter("forward", "Linear")
        timer.time = 12
        timer.leave()
        timer.time = 13
    timer.time = 20
    timer.leave()
    assert timer.spent == {
        ("inputs", ""): [3, 1],
        ("forward", "Linear"): [7, 1],
        ("forward", ""): [3, 1],
        ("results", ""): [7, 1],
    }
