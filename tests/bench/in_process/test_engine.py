import threading

import pytest

from bench.errors import BenchError
from bench.in_process.engine import InProcessEngine
from bench.in_process.run import sampling_params
from bench.settings import EngineTarget, Pace, Sampling
from bench.timetable import Timetable
from bench.workload import Request
from core.assembly.build import load_engine
from core.contract.config import EngineConfig, ModelConfig

GREEDY = Sampling()


@pytest.fixture(scope="module")
def loaded(tiny):
    """One engine for all tests; each runs it on a thread of its own, one after another."""
    engine = EngineConfig(max_model_len=128, max_num_seqs=4, kv_cache_memory=2**20)
    return load_engine(ModelConfig(model=str(tiny), dtype="float32"), engine)


@pytest.fixture
def open_bench(loaded):
    benches = []

    def start(load=lambda: loaded, **target):
        bench = InProcessEngine(EngineTarget(**target), load=load)
        benches.append(bench)
        return bench

    yield start
    for bench in benches:
        bench.close()


def run(bench, *asked, pace=None, sampling=GREEDY, **options):
    timetable = Timetable(pace or Pace(), len(asked), "s")
    concurrency = pace.concurrency if pace else None
    return bench.run(asked, timetable, sampling, concurrency=concurrency, **options)


REQUESTS = [Request(f" {word}" * 5, 6) for word in ("oak", "ash", "fern", "moss", "reed", "ivy")]


def check(records):
    for record in records:
        assert record.error is None
        assert record.is_completed
        assert record.finish_reason == "length"
        assert (record.prompt_tokens, record.completion_tokens) == (5, 6)
        assert record.due <= record.submit <= record.ready <= record.scheduled
        assert record.scheduled <= record.first <= record.last <= record.end
        assert record.add >= 0
        assert record.cached_tokens is not None
        assert not record.estimated


def test_every_request_of_a_run_is_recorded(open_bench):
    bench = open_bench()
    ended = []
    records = run(bench, *REQUESTS, on_end=lambda: ended.append(1))
    check(records)
    assert all(record.tokenize > 0 and len(record.token_times) == 6 for record in records)
    assert len(ended) == len(REQUESTS)
    assert bench.info.max_model_len == 128
    before = bench.stats.num_output_tokens
    check(run(bench, *REQUESTS))
    assert bench.stats.num_output_tokens - before == 36
    assert bench.profile == ()


def test_with_pretok_prompts_are_not_tokenized_in_the_run(open_bench):
    records = run(open_bench(pretok=True), *REQUESTS)
    check(records)
    assert all(record.tokenize is None for record in records)


def test_a_closed_loop_has_at_most_so_many_requests_in_flight(open_bench):
    records = run(open_bench(), *REQUESTS, pace=Pace(concurrency=2))
    check(records)
    for i, record in enumerate(records):
        in_flight = [r for r in records[:i] if r.end > record.submit]
        assert len(in_flight) < 2
        assert record.lag == 0


def test_requests_are_submitted_on_schedule(open_bench):
    records = run(open_bench(), *REQUESTS[:3], pace=Pace(interval=0.01))
    check(records)
    assert [round(r.due - records[0].due, 6) for r in records] == [0, 0.01, 0.02]


@pytest.mark.parametrize("pretok", [False, True])
def test_prefill_max_batch_size_limits_requests_in_prefill(open_bench, loaded, monkeypatch, pretok):
    scheduler = loaded.engine._scheduler
    most = 0
    schedule = scheduler.schedule

    def watch():
        nonlocal most
        plan = schedule()
        prefilling = [i for i in plan.scheduled if i.sequence.num_output_tokens == 0]
        most = max(most, len(prefilling))
        return plan

    monkeypatch.setattr(scheduler, "schedule", watch)
    check(run(open_bench(prefill_max_batch_size=1, pretok=pretok), *REQUESTS))
    assert most == 1


def test_the_stream_interval_sets_the_tokens_of_a_piece(open_bench):
    records = run(open_bench(), *REQUESTS, sampling=Sampling(stream_interval=5))
    check(records)
    assert all(len(record.token_times) == 2 for record in records)


def test_an_invalid_request_fails_alone(open_bench):
    requests = REQUESTS[0], Request(" oak" * 100, 50), Request("\ud800", 6)
    good, bad, surrogate = run(open_bench(), *requests)
    check([good])
    assert "100 tokens and 50 new ones" in bad.error
    assert "not valid Unicode" in surrogate.error
    assert not bad.is_completed
    assert not bad.is_rejected


def test_chat_uses_the_chat_template(open_bench):
    (record,) = run(open_bench(), Request("oak", 3), chat=True)
    assert record.error is None
    assert record.prompt_tokens > 5


def test_a_profile_reports_both_kinds_of_steps(open_bench):
    bench = open_bench(profile=True)
    run(bench, *REQUESTS)
    bench.clear_profile()
    check(run(bench, *REQUESTS))
    kinds = {report.kind: report for report in bench.profile}
    assert kinds.keys() - {"mixed"} == {"prefill", "decode"}
    assert any(stage.name == "delivery" for stage in kinds["decode"].stages)


def test_a_model_that_cannot_be_loaded_is_an_error(tmp_path):
    with pytest.raises(BenchError, match=str(tmp_path)):
        InProcessEngine(EngineTarget(model=ModelConfig(model=str(tmp_path))))


def test_requests_of_an_engine_that_dies_fail(open_bench, loaded, monkeypatch):
    died = threading.Event()

    def step():
        died.set()
        raise SystemError("out of luck")

    bench = open_bench()
    monkeypatch.setattr(loaded.engine, "step", step)
    records = run(bench, *REQUESTS, pace=Pace(concurrency=1))
    assert died.is_set()
    assert {record.error for record in records} == {"the engine died: out of luck"}
    with pytest.raises(BenchError, match="out of luck"):
        run(bench, *REQUESTS)


def test_sampling_params_of_the_flags():
    assert sampling_params(GREEDY, 5).is_greedy
    drawn = sampling_params(Sampling(do_sample=True, top_k=4, top_p=0.5, ignore_eos=True), 5)
    assert (drawn.temperature, drawn.top_k, drawn.top_p, drawn.ignore_eos) == (1.0, 4, 0.5, True)
    assert sampling_params(Sampling(do_sample=True, temperature=0.3), 5).temperature == 0.3
