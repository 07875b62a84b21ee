"""What the steps of a load spend, beside the limits of the machine."""

import shutil
import subprocess
import sys

import msgspec
import pytest

from bench.profile_report import KindReport, PartTime, StageTime
from bench.settings import EngineTarget
from benchmarks.probe import Rates
from benchmarks.profile_load import Load
from benchmarks.profile_rows import HEAD, Profile
from benchmarks.profiles import main, profile_of
from server.cli.main import parse_command

RATES = Rates(
    threads=2, read_gbs=40.0, fma_gflops=200.0, method="", products={"bfloat16": 400.0, "int8": 800}
)


def kind(name="decode", num_steps=100, *parts):
    """Steps of 10 ms, 2 of them outside of the forward pass."""
    found = parts or (
        PartTime(name="down", ms=2, share=0, waiting_ms=0.5, gb_s=20, gflop_s=40),
        PartTime(name="output projection", ms=1, share=0, waiting_ms=0, gb_s=1, gflop_s=400),
        PartTime(name="output layer", ms=2, share=0, waiting_ms=0, gb_s=30, gflop_s=60),
        PartTime(name="attention of one token", ms=1, share=0, waiting_ms=0, gb_s=10, gflop_s=1),
        PartTime(name="last norm", ms=1.5, share=0, waiting_ms=0.25),
        PartTime(name="attention plan", ms=0.5, share=0, calls=1),
    )
    return KindReport(
        kind=name,
        num_steps=num_steps,
        step_ms=10,
        overhead_ms=0,
        num_sequences=3,
        num_tokens=5,
        stages=(
            StageTime(name="schedule", ms=2, share=0),
            StageTime(name="forward", ms=8, share=0, parts=found),
        ),
        waiting_ms=(0.5, 1.0),
    )


def rows(*kinds, seconds=1.0, probes=(RATES,), weights="bfloat16"):
    load = Load("x:s1", Load.of("gpt2:s1", 1).scenario, (), weights)
    found = Profile(load, kinds, seconds, probes).rows()
    return [dict(zip(HEAD, row, strict=True)) for row in found]


def test_a_row_has_times_rates_and_their_shares_of_the_limit():
    (row,) = rows(kind(), seconds=1.25)
    assert row == {
        "load": "x:s1",
        "steps": "streams: 3, 5 tokens",
        "of the time": "80%",
        "memory, GB/s": "40",
        "ms": "10.0",
        "limit, ms": "3.75",
        "layers' products": "3.00: 160 GFLOP/s, 67%",  # 2 ms at half of one rate, 1 ms at the other
        "output layer": "2.00: 30 GB/s, 75%",
        "attention": "1.00: 10 GB/s, 25%",
        "rest of the call": "1.50",
        "outside of it": "2.50",
        "waiting": "0.750",
    }


def test_quantized_weights_are_multiplied_as_bytes():
    part = PartTime(name="down", ms=8, share=0, waiting_ms=0, gb_s=1, gflop_s=400)
    (row,) = rows(kind("mixed", 1, part), seconds=0.01, weights="gguf")
    assert row["layers' products"] == "8.00: 400 GFLOP/s, 50%"
    assert row["attention"] == "0"


def test_kinds_of_steps_that_take_little_time_have_no_row():
    found = rows(kind("prefill", 9), kind("mixed", 11), kind("decode", 80))
    assert [row["steps"].partition(":")[0] for row in found] == ["streams", "streams, prompts"]


def test_memory_that_changes_is_shown_as_a_range():
    fast = Rates(threads=2, read_gbs=60, fma_gflops=1, method="", products=RATES.products)
    (row,) = rows(kind(), probes=(fast, RATES))
    assert row["memory, GB/s"] == "40-60"
    assert row["output layer"] == "2.00: 30 GB/s, 60%"


@pytest.mark.parametrize(
    ("name", "scale", "length", "prefix", "pace"),
    [
        ("gpt2:s1", 1, (32, 32), 0, (1, 0)),
        ("gpt2:s2:int8", 1, (1, 8), 0, (None, 0.02)),
        ("gpt2:s4", 1, (32, 32), 700, (8, 0)),
        ("gpt2:s4-unshared", 1, (732, 732), 0, (8, 0)),
        ("qwen3-0.6b:s3-16", 0.5, (256, 256), 0, (16, 0)),
    ],
)
def test_a_load_is_that_of_the_scenario(name, scale, length, prefix, pace):
    load = Load.of(name, scale)
    settings = parse_command(["bench", "--profile", *load.command], {})
    work = settings.workload
    assert (work.length, work.shared_prefix_len) == (length, prefix)
    assert (work.num_requests, work.max_new_tokens) == (
        load.scenario.num_requests,
        load.scenario.max_tokens,
    )
    assert (settings.pace.concurrency, settings.pace.interval) == pace
    assert isinstance(settings.target, EngineTarget)
    assert settings.target.random_model == name.partition(":")[0]
    assert load.weights == settings.target.model.quantization.replace("none", "bfloat16")


@pytest.mark.parametrize(
    "name", ["gpt2:s5", "gpt2:s9", "gpt2", "gpt9:s1", "gpt2:long", "gpt2:s2-sampled"]
)
def test_what_is_no_load_is_refused(name, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["profiles", name])
    with pytest.raises(SystemExit):
        main()
    assert name.partition(":")[0] in capsys.readouterr().err


@pytest.fixture
def python(tmp_path):
    """An interpreter that writes a report instead of running the given module."""
    report = {"profile": msgspec.to_builtins([kind()]), "runs": 2 * [{"client": {"wall_s": 1.0}}]}
    file = tmp_path / "python"
    file.write_text(
        f"#!{sys.executable}\nimport sys, json, pathlib\n"
        f"assert sys.argv[1:5] == ['-m', 'server', 'bench', '--profile']\n"
        f"pathlib.Path(sys.argv[-1]).write_text(json.dumps({report}))\n"
    )
    file.chmod(0o700)
    return str(file)


def test_a_load_is_run_between_two_probes(python):
    found = profile_of(Load.of("gpt2:s1", 1), python)
    assert (found.kinds, found.seconds) == ([kind()], 2.0)
    assert [probe.read_gbs > 0 for probe in found.probes] == [True, True]


def test_a_load_that_fails_raises():
    with pytest.raises(subprocess.CalledProcessError):
        profile_of(Load.of("gpt2:s1", 1), shutil.which("false"))
