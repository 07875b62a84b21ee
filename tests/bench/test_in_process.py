import threading

import pytest

from bench.engine_run import sampling_params
from bench.errors import BenchError
from bench.in_process import EngineBench
from bench.settings import EngineTarget, Pace, Sampling
from bench.timetable import Timetable
from bench.workload import Request
from core.build import load_engine
from core.contract.config import EngineConfig, ModelConfig

GREEDY = Sampling()


@pytest.fixture(scope="module")
def loaded(tiny):
    """One engine for all benches: each has a thread of its own for it, one after another."""
    engine = EngineConfig(max_model_len=128, max_num_seqs=4, kv_cache_memory=2**20)
    return load_engine(ModelConfig(model=str(tiny), dtype="float32"), engine)


@pytest.fixture
def open_bench(loaded):
    benches = []

    def start(load=lambda: loaded, **target):
        bench = EngineBench(EngineTarget(**target), load=load)
        benches.append(bench)
        return bench

    yield start
    for bench in benches:
        bench.close()


def run(bench, *asked, pace=None, sampling=GREEDY, **options):
    timetable = Timetable(pace or Pace(), len(asked), "s")
    concurrency = pace.concurrency if pace else None
    return bench.run(asked, timetable, sampling, concurrency=concurrency, **options)


ASKED = [Request(f" {word}" * 5, 6) for word in ("oak", "ash", "fern", "moss", "reed", "ivy")]


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


def test_a_run(open_bench):
    bench = open_bench()
    ended = []
    records = run(bench, *ASKED, on_end=lambda: ended.append(1))
    check(records)
    assert all(record.tokenize > 0 and len(record.token_times) == 6 for record in records)
    assert len(ended) == len(ASKED)
    assert bench.info.max_model_len == 128
    before = bench.stats.num_output_tokens
    check(run(bench, *ASKED))
    assert bench.stats.num_output_tokens - before == 36
    assert bench.profile == ()


def test_tokenized_before(open_bench):
    records = run(open_bench(pretok=True), *ASKED)
    check(records)
    assert all(record.tokenize is None for record in records)


def test_a_closed_loop(open_bench):
    records = run(open_bench(), *ASKED, pace=Pace(concurrency=2))
    check(records)
    for i, record in enumerate(records):
        in_flight = [r for r in records[:i] if r.end > record.submit]
        assert len(in_flight) < 2
        assert record.lag == 0


def test_a_schedule_is_kept(open_bench):
    records = run(open_bench(), *ASKED[:3], pace=Pace(interval=0.01))
    check(records)
    assert [round(r.due - records[0].due, 6) for r in records] == [0, 0.01, 0.02]


@pytest.mark.parametrize("pretok", [False, True])
def test_few_are_prefilled_at_once(open_bench, loaded, monkeypatch, pretok):
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
    check(run(open_bench(prefill_max_batch_size=1, pretok=pretok), *ASKED))
    assert most == 1


def test_pieces_of_several_tokens(open_bench):
    records = run(open_bench(), *ASKED, sampling=Sampling(stream_interval=5))
    check(records)
    assert all(len(record.token_times) == 2 for record in records)


def test_what_does_not_fit_fails_alone(open_bench):
    good, bad, lone = run(open_bench(), ASKED[0], Request(" oak" * 100, 50), Request("\ud800", 6))
    check([good])
    assert "100 tokens and 50 new ones" in bad.error
    assert "not valid Unicode" in lone.error
    assert not bad.is_completed
    assert not bad.is_rejected


def test_chat(open_bench):
    (record,) = run(open_bench(), Request("oak", 3), chat=True)
    assert record.error is None
    assert record.prompt_tokens > 5


def test_a_profile(open_bench):
    bench = open_bench(profile=True)
    run(bench, *ASKED)
    bench.clear_profile()
    check(run(bench, *ASKED))
    kinds = {report.kind: report for report in bench.profile}
    assert kinds.keys() == {"prefill", "decode"}
    assert any(stage.name == "delivery" for stage in kinds["decode"].stages)


def test_a_model_that_cannot_be_loaded(tmp_path):
    with pytest.raises(BenchError, match=str(tmp_path)):
        EngineBench(EngineTarget(model=ModelConfig(model=str(tmp_path))))


def test_an_engine_that_dies(open_bench, loaded, monkeypatch):
    died = threading.Event()

    def step():
        died.set()
        raise SystemError("out of luck")

    bench = open_bench()
    monkeypatch.setattr(loaded.engine, "step", step)
    records = run(bench, *ASKED, pace=Pace(concurrency=1))
    assert died.is_set()
    assert {record.error for record in records} == {"the engine died: out of luck"}
    with pytest.raises(BenchError, match="out of luck"):
        run(bench, *ASKED)


def test_sampling():
    assert sampling_params(GREEDY, 5).is_greedy
    drawn = sampling_params(Sampling(do_sample=True, top_k=4, top_p=0.5, ignore_eos=True), 5)
    assert (drawn.temperature, drawn.top_k, drawn.top_p, drawn.ignore_eos) == (1.0, 4, 0.5, True)
    assert sampling_params(Sampling(do_sample=True, temperature=0.3), 5).temperature == 0.3
