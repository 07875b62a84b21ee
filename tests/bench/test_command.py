import json

import msgspec
import pytest

from bench import command, random_model
from bench.errors import BenchError
from bench.figures import summarize
from bench.over_http.runner import sampling_fields
from bench.records import RequestTimes
from bench.report import RunResult, make_report, render, write_json
from bench.settings import (
    BenchSettings,
    EngineTarget,
    Pace,
    Sampling,
    ServerTarget,
    Workload,
)
from core.contract.config import EngineConfig, ModelConfig
from tests.support.each import each

SMALL = Workload(num_requests=3, length=(4, 4), max_new_tokens=3)


@pytest.fixture
def in_process(tiny):
    return BenchSettings(
        target=EngineTarget(
            model=ModelConfig(model=str(tiny)),
            engine=EngineConfig(max_model_len=64, kv_cache_memory=2**20),
            profile=True,
        ),
        workload=SMALL,
        repeat_runs=2,
    )


def test_a_benchmark_in_process_prints_and_writes_its_results(in_process, tmp_path, capsys):
    settings = msgspec.structs.replace(in_process, json=tmp_path / "x.json")
    assert command.run(settings) == 0
    shown = capsys.readouterr()
    assert "requests              3: 3 completed, 0 rejected, 0 failed" in shown.out
    for name in (
        "medians of 2 runs",
        "time to first token",
        "queue wait",
        "steps of prompts",
        "outside of",
    ):
        assert name in shown.out
    data = json.loads((tmp_path / "x.json").read_text())
    assert len(data["runs"]) == 2
    assert data["median"]["client"]["completion_tokens"] == 9
    assert data["median"]["engine"]["steps"] >= 3
    assert {kind["kind"] for kind in data["profile"]} <= {"prefill", "mixed", "decode"}
    assert sum(kind["num_steps"] for kind in data["profile"]) == sum(
        run["engine"]["steps"] for run in data["runs"]
    )
    assert data["settings"]["workload"]["num_requests"] == 3
    assert data["machine"]["cpus"] >= 1


def test_make_only_makes_the_model_and_prints_its_directory(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(random_model, "model_cache", lambda: tmp_path)
    target = EngineTarget(random_model="tiny", make_only=True)
    assert command.run(BenchSettings(target=target)) == 0
    shown = capsys.readouterr()
    assert shown.out.rstrip("\n") == str(tmp_path / f"tiny-random-{random_model.VERSION}")
    assert "making" in shown.err
    assert (tmp_path / f"tiny-random-{random_model.VERSION}" / "config.json").is_file()


def refused(settings, capsys):
    assert command.run(settings) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("roseinfer: ")
    return lines[-1]


def test_a_target_that_cannot_be_opened_is_reported_in_one_line(tmp_path, capsys, monkeypatch):
    settings = BenchSettings(target=ServerTarget(base_url="nonsense", model="m"))
    assert "is not an http or https URL" in refused(settings, capsys)
    settings = BenchSettings(target=EngineTarget(model=ModelConfig(model=str(tmp_path))))
    assert str(tmp_path) in refused(settings, capsys)
    (tmp_path / "file").touch()
    monkeypatch.setattr(random_model, "model_cache", lambda: tmp_path / "file")
    settings = BenchSettings(target=EngineTarget(random_model="tiny"))
    assert "cannot make the random model" in refused(settings, capsys)


def test_a_closed_port_is_reported_in_one_line(capsys, unused_port):
    settings = BenchSettings(target=ServerTarget(base_url=f"http://127.0.0.1:{unused_port}/v1"))
    assert "cannot connect" in refused(settings, capsys)


def test_failed_requests_are_counted_and_exit_with_code_1(capsys, unused_port):
    target = ServerTarget(base_url=f"http://127.0.0.1:{unused_port}/v1", model="m")
    settings = BenchSettings(target=target, workload=SMALL, warmup_runs=0)
    assert command.run(settings) == 1
    shown = capsys.readouterr().out
    assert "0 completed, 0 rejected, 3 failed" in shown
    assert "cannot connect" in shown


def test_sampling_fields_of_a_request():
    assert sampling_fields(Sampling()) == {"temperature": 0}
    assert sampling_fields(Sampling(stream_interval=3, ignore_eos=True)) == {
        "temperature": 0,
        "stream_interval": 3,
        "ignore_eos": True,
    }
    drawn = Sampling(do_sample=True, temperature=0.5, top_k=0, top_p=0.9)
    assert sampling_fields(drawn) == {"temperature": 0.5, "top_k": 0, "top_p": 0.9}
    assert sampling_fields(Sampling(do_sample=True)) == {}


def result(**fields):
    record = RequestTimes(
        submit=1.0,
        due=1.0,
        token_times=[1.1, 1.2],
        end=1.3,
        completion_tokens=2,
        status=200,
        finish_reason="length",
        **fields,
    )
    return RunResult(client=summarize([record]), cpu_share=0.5)


@each(
    ("settings", "says"),
    [
        (BenchSettings(), "64 requests of 32 words, all at once, 128 new tokens, greedy"),
        (BenchSettings(workload=Workload(length=(1, 8))), "of 1 to 8 words,"),
        (BenchSettings(workload=Workload(shared_prefix_len=9)), "after 9 shared ones"),
        (BenchSettings(workload=Workload(text="abc", repeats=2)), "of 6 characters"),
        (BenchSettings(pace=Pace(interval=0.02)), "20 ms apart"),
        (BenchSettings(pace=Pace(rate=2.5)), "2.5 a second"),
        (BenchSettings(pace=Pace(concurrency=8)), "one after another, 8 in flight"),
        (BenchSettings(sampling=Sampling(do_sample=True)), "sampled"),
    ],
)
def test_the_report_describes_the_load(settings, says):
    assert says in render(make_report("x", settings, [result()]))


def test_the_report_marks_estimates_and_hides_the_key(tmp_path):
    target = ServerTarget(base_url="http://x/v1", api_key="secret")
    report = make_report("x", BenchSettings(target=target), [result(estimated=True)])
    assert "estimated" in render(report)
    write_json(report, tmp_path / "x.json")
    text = (tmp_path / "x.json").read_text()
    assert "secret" not in text
    assert json.loads(text)["median"]["client"]["estimated"] is True


def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
    report = make_report("x", BenchSettings(), [result()])
    with pytest.raises(BenchError, match="cannot write"):
        write_json(report, tmp_path / "no" / "x.json")
