"""The GPU check with a tiny model on a CPU."""

import json
import sys

import pytest

from bench import random_model
from benchmarks import gpu_check
from benchmarks.gpu import loads
from benchmarks.gpu.drive import drive
from benchmarks.gpu.idle import gaps
from benchmarks.gpu.options import Options
from benchmarks.gpu.parts import PARTS

TINY = Options(device="cpu", tiny=True)
LOADS = (
    loads.SINGLE,
    loads.STAGGERED,
    loads.OFFLINE,
    *loads.CONCURRENT,
    loads.SHARED,
    loads.UNSHARED,
    loads.INTERFERE,
)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The folder of the random models of these tests."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(autouse=True)
def _own_models(models, monkeypatch):
    monkeypatch.setattr(random_model, "model_cache", lambda: models)


def test_every_part_has_a_name_and_a_line_of_help():
    assert tuple(PARTS) == gpu_check.NAMES
    assert all(f"\n{name} " in gpu_check.__doc__ for name in PARTS)


def test_concurrent_loads_have_1024_tokens_in_and_256_out():
    assert [scenario.concurrency for scenario in loads.CONCURRENT] == [1, 8, 32, 128]
    assert {scenario.prompt_words for scenario in loads.CONCURRENT} == {(1024, 1024)}
    assert {scenario.max_tokens for scenario in loads.CONCURRENT} == {256}


@pytest.fixture(scope="module")
def loaded(models):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(random_model, "model_cache", lambda: models)
        with TINY.engine("gpt2") as engine:
            yield engine


@pytest.mark.parametrize("scenario", LOADS, ids=lambda scenario: scenario.name)
def test_a_load_runs_to_its_end(loaded, scenario):
    what = loads.fit(scenario, tiny=True)
    found = drive(loaded, what, seed=scenario.name)
    assert found["num_errors"] == 0
    assert found["num_sent"] == found["num_ended"] == what.num_requests
    assert found["num_tokens"] == what.num_requests * what.max_tokens
    assert found["num_prompt_tokens"] == what.num_requests * (
        what.prompt_words[0] + what.prefix_words
    ) or (scenario.kind == "open")
    assert ("long_ttft_ms" in found) == (scenario.kind == "interfere")
    assert (found["num_cached_tokens"] > 0) == (scenario is loads.SHARED)
    assert not loaded.engine.has_work


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", ["machine", "attention", "sampling", "memory", "small", "fp8", "weights"]
)
def test_a_part_reports_rows_and_passes(part, capsys):
    assert gpu_check.main(["--inside", part, "--device", "cpu", "--tiny"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [json.loads(line.partition(" ")[2]) for line in lines if line]
    assert all(line.startswith(gpu_check.MARK) for line in lines)
    assert rows
    assert all(row.get("ok", True) and row["name"] for row in rows)


def test_idle_time_between_the_spans_of_a_trace():
    step = [(0.0, 10.0), (10.0, 18.0), (19.0, 20.0)]
    spans = [(start + 50.0 * i, end + 50.0 * i) for i in range(4) for start, end in step]
    found = gaps(spans, 4)
    assert found["gap_between_steps_ms"] == pytest.approx(0.030)
    assert found["step_ms"] == pytest.approx(170 / 4 / 1e3)
    assert found["idle_share"] == pytest.approx((3 * 30 + 4 * 1) / 170)
    overlapping = [(0.0, 10.0), (2.0, 4.0), (3.0, 30.0)]
    assert gaps(overlapping, 1)["idle_share"] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "row"),
    [
        ('print(MARK, \'{"name": "x", "ok": true}\')', {"name": "x", "ok": True}),
        ("import os; os._exit(3)", {"name": "gpt2", "ok": False, "says": "exited with status 3"}),
        (
            "import signal; signal.pause()",
            {"name": "gpt2", "ok": False, "says": "not finished after 2 s"},
        ),
    ],
    ids=["good", "crash", "hangs"],
)
def test_a_part_that_crashes_or_hangs_is_reported(program, row, monkeypatch, tmp_path, capsys):
    fake = tmp_path / "python"
    fake.write_text(f"#!{sys.executable}\nMARK = {gpu_check.MARK!r}\n{program}\n")
    fake.chmod(0o700)
    monkeypatch.setattr(gpu_check.sys, "executable", str(fake))
    results = tmp_path / "results.jsonl"
    limit = "2" if "pause" in program else "60"
    arguments = ["--parts", "gpt2", "--json", str(results), "--limit", limit]
    status = gpu_check.main(arguments)
    assert status == (0 if row["ok"] else 1)
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert row.items() <= rows[0].items()
    assert rows[0]["part"] == "gpt2"
    assert "== gpt2" in capsys.readouterr().out


def test_an_unknown_part_is_an_error(capsys):
    with pytest.raises(SystemExit):
        gpu_check.main(["--parts", "machine,none"])
    assert "no such part: none" in capsys.readouterr().err


def test_parts_without_time_left_are_reported_as_skipped(capsys):
    assert gpu_check.main(["--parts", "gpt2,large", "--within", "1"]) == 0
    assert capsys.readouterr().out.count("skipped=no time left") == 2
