import time

import pytest
import torch

from bench.in_process.module_times import ModuleTimes, hook_seconds
from bench.in_process.step_profile import StepProfile
from core.assembly.build import load_engine
from core.contract.config import EngineConfig, ModelConfig
from core.kernels.cpu.library import kernels
from core.observe.step_timer import STAGES
from tests.support.builders import make_request


@pytest.fixture(scope="module", params=["cpu", "torch"])
def profiled(request):
    """The built-in model's engine, its profile, and the classes of its modules.

    With the first attention all layers are one call of the kernel, with the other one
    transformers' modules are.
    """
    if request.param == "cpu" and kernels() is None:
        pytest.skip("no C++ compiler")
    profile = StepProfile()
    classes, backends = set(), []

    def instrument(model, attention):
        modules = [] if model.module is None else model.module.modules()
        classes.update(type(module).__name__ for module in modules)
        backends.append(attention)
        return profile.modules.instrument(model, attention)

    loaded = load_engine(
        ModelConfig(dtype="float32"),
        EngineConfig(
            max_model_len=128,
            kv_cache_memory=2**24,
            enforce_eager=True,
            attention_backend=request.param,
        ),
        instrument=instrument,
    )
    profile.attach(loaded.engine.timer, is_cuda=False)
    loaded.engine.observe(profile.on_schedule)
    return loaded.engine, profile, classes, backends[0]


def generate(profiled, *requests):
    engine, profile = profiled[:2]
    profile.clear()
    outputs = []
    for request in requests:
        engine.add(request)
    while engine.has_work:
        outputs += engine.step()
        engine.timer.lap("delivery")
    return outputs


def test_the_stages_add_up_to_the_step(profiled):
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
        assert report.overhead_ms >= 0


def test_the_parts_add_up_to_the_forward_pass(profiled):
    generate(profiled, make_request(range(10, 40), max_tokens=3, ignore_eos=True))
    (prefill, decode) = sorted(profiled[1].report(), key=lambda report: -report.num_tokens)
    for report in (prefill, decode):
        forward = next(stage for stage in report.stages if stage.name == "forward")
        parts = {part.name: part for part in forward.parts}
        names = {name for name in parts.keys() - profiled[2] if parts[name].waiting_ms is None}
        is_one_call = names == {"attention plan", "rest of the call", "rest"}
        assert is_one_call or names == {"attention", "attention plan", "rest"}
        assert is_one_call or parts["attention"].calls >= 1
        assert is_one_call == ("output layer" in parts) == bool(report.waiting_ms)
        assert parts["attention plan"].calls == 1
        assert sum(part.ms for part in forward.parts) == pytest.approx(forward.ms)
        assert [part.ms for part in forward.parts] == sorted(
            (part.ms for part in forward.parts), reverse=True
        )


def test_the_call_of_all_layers_is_divided_into_its_stages(profiled):
    generate(
        profiled,
        make_request(range(10, 40), request_id="a", max_tokens=6, ignore_eos=True),
        make_request(range(50, 70), request_id="b", max_tokens=4, ignore_eos=True),
    )
    for report in profiled[1].report():
        forward = next(stage for stage in report.stages if stage.name == "forward")
        if any(part.name == "attention" for part in forward.parts):
            pytest.skip("layers are called in turn")
        stages = {part.name: part for part in forward.parts if part.waiting_ms is not None}
        assert all(0 <= stage.waiting_ms <= stage.ms for stage in stages.values())
        assert min(stages["down"].gflop_s, stages["down"].gb_s) > 0
        attention = "several tokens" if report.kind == "prefill" else "one token"
        assert stages[f"attention of {attention}"].gb_s > 0
        assert len(report.waiting_ms) == torch.get_num_threads()
        waiting = sum(report.waiting_ms) / len(report.waiting_ms)
        assert waiting == pytest.approx(sum(stage.waiting_ms for stage in stages.values()))


def test_steps_of_streams_of_prompts_and_of_both_are_told_apart(profiled):
    engine, profile = profiled[:2]
    profile.clear()
    engine.add(make_request(range(10, 40), request_id="a", max_tokens=6, ignore_eos=True))
    engine.step()
    engine.add(make_request(range(80, 100), request_id="b", max_tokens=2, ignore_eos=True))
    while engine.has_work:
        engine.step()
        engine.timer.lap("delivery")
    reports = {report.kind: report for report in profile.report()}
    assert {kind: report.num_steps for kind, report in reports.items()} == {
        "prefill": 1,
        "mixed": 1,
        "decode": 4,
    }
    assert (reports["mixed"].num_tokens, reports["mixed"].num_sequences) == (21, 2)


def test_a_failed_step_does_not_spoil_the_next_ones(profiled, monkeypatch):
    def fail(_batch):
        raise RuntimeError("no")

    with monkeypatch.context() as patch:
        patch.setattr(profiled[3], "plan", fail)
        (output,) = generate(profiled, make_request(max_tokens=3))
        assert output.error
    generate(profiled, make_request(max_tokens=3, ignore_eos=True))
    for report in profiled[1].report():
        assert sum(stage.share for stage in report.stages) == pytest.approx(1)


def test_an_idle_engine_has_no_report(profiled):
    profiled[1].clear()
    assert profiled[1].report() == ()


def test_idle_time_belongs_to_no_step(profiled):
    engine, profile = profiled[:2]
    clock = iter(range(0, 10**9, 1000))
    engine.timer.clock = lambda: next(clock)
    try:
        generate(profiled, make_request(max_tokens=2, ignore_eos=True))
        for _ in range(1000):
            engine.timer.clock()
        engine.add(make_request(request_id="later", max_tokens=2, ignore_eos=True))
        while engine.has_work:
            engine.step()
            engine.timer.lap("delivery")
        for report in profile.report():
            laps = round(report.step_ms / 1e-3)
            assert len(STAGES) <= laps <= len(STAGES) + 2  # layers in one call hand outputs over
    finally:
        engine.timer.clock = time.perf_counter_ns


def test_inner_calls_are_not_counted_twice():
    times, now = ModuleTimes(), 0

    def clock():
        return now

    times.clock = clock
    times.enter("Layer")
    now = 5
    times.enter("Linear")
    now = 12
    times.leave()
    now = 13
    times.leave()
    assert times.nanoseconds == {"Linear": 7, "Layer": 6}
    assert times.calls == {"Linear": 1, "Layer": 1}


def test_timing_a_call_costs_something():
    assert hook_seconds() >= 0
