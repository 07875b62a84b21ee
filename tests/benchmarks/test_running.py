"""A comparison of stub servers, from the processes to the table."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from benchmarks import host, probe
from benchmarks.compare import make_parser
from benchmarks.lines import read_lines
from benchmarks.peers import BenchModel
from benchmarks.process import DidNotStart
from benchmarks.rounds import Probes, run_rounds
from benchmarks.running import running
from benchmarks.session import Session
from benchmarks.table import tables
from tests.benchmarks.test_floors import TINY

STUB = Path(__file__).with_name("stub_server.py")


@dataclass
class Stub:
    name: str = "stub"
    weights: str = "bfloat16"
    is_variant: bool = False
    extra: dict = field(default_factory=dict)
    program: tuple = (str(STUB),)

    def missing(self, model):
        return None

    def command(self, model, port):
        return [sys.executable, *self.program, str(port)]

    def environment(self, model):
        return {}

    def model_name(self, model):
        return model.name

    def versions(self):
        return "1"


@pytest.fixture
def model(tmp_path):
    return BenchModel(name="tiny", directory=tmp_path, shape=TINY)


def test_a_server_is_started_measured_and_stopped(model, tmp_path):
    with running(Stub(), model, tmp_path / "log") as server:
        server.wait_ready(60)
        pid = server.pid
        found = server.run("s1", scale=0.25, seed="0", limit=60)
        assert host.usage(pid).resident_mb > 1
    assert (found["num_ended"], found["num_tokens"]) == (1, 128)
    assert found["num_prompt_tokens"] == 32
    assert host.usage(pid).resident_mb == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_server_that_exits_raises_with_the_end_of_its_log(model, tmp_path):
    broken = Stub(program=("-c", "raise SystemExit('no such flag')"))
    with (
        running(broken, model, tmp_path / "log") as server,
        pytest.raises(DidNotStart, match=r"exited with 1: .*no such flag"),
    ):
        server.wait_ready(60)


@pytest.mark.slow
def test_rounds_write_lines_that_become_a_table(model, tmp_path, capsys):
    out = tmp_path / "results.jsonl"
    flags = ["--rounds", "2", "--scale", "0.5", "--wait-quiet", "0", "--out", str(out)]
    options = make_parser().parse_args([*flags, "--scenarios", "s1,s2", "--retries", "0"])
    session = Session(options=options, gemm={})
    broken = Stub(name="broken", program=("-c", "raise SystemExit(3)"))
    run_rounds(session, model, [Stub(), broken], tmp_path)
    lines = read_lines([out])
    runs = [line for line in lines if line["kind"] == "run"]
    assert [(r["round"], r["scenario"]) for r in runs] == [
        (number, scenario) for number in (0, 1) for scenario in ("s1", "s2")
    ]
    assert all(run["floors"] and run["probe"]["read_gbs"] > 0 for run in runs)
    # Before and after each run, and between the two requests of S1.
    assert [len(run["probes"]) for run in runs] == [3, 2, 3, 2]
    assert [len(run["floors_by_probe"]) for run in runs] == [3, 2, 3, 2]
    assert [len(run["is_busy_by_probe"]) for run in runs] == [3, 2, 3, 2]
    failures = [line for line in lines if line["kind"] == "failure"]
    assert [(line["contender"], line["weights"]) for line in failures] == [("broken", "bfloat16")]
    assert "| stub |" in tables(lines)
    assert "NaN" not in out.read_text()
    assert "tiny 2 stub s2: tok_s" in capsys.readouterr().out


def test_slices_add_up_to_the_whole(model, tmp_path, capsys):
    out = tmp_path / "results.jsonl"
    flags = ["--rounds", "1", "--scale", "0.1", "--wait-quiet", "0", "--out", str(out)]
    flags += ["--scenarios", "streams-1,streams-2,long", "--retries", "0", "--resume"]

    def a_slice(minutes, contender):
        options = make_parser().parse_args([*flags, "--max-minutes", str(minutes)])
        session = Session(options=options, gemm={})
        session.resume()
        run_rounds(session, model, [contender], tmp_path)
        return session.num_left

    assert a_slice(0.1, Stub()) == 2  # the model's context has no room for the long prompt
    assert not out.exists()
    assert a_slice(60, Stub()) == 0
    ran = [line["scenario"] for line in read_lines([out])]
    assert ran == ["streams-1", "streams-2"]
    assert a_slice(60, Stub(program=("-c", "raise SystemExit(3)"))) == 0  # it is not even started
    assert len(read_lines([out])) == 2
    capsys.readouterr()


def test_an_unknown_scenario_is_refused(capsys):
    with pytest.raises(SystemExit):
        make_parser().parse_args(["--scenarios", "s1,s9"])
    assert "s9 is none of warm-up, s1, s2" in capsys.readouterr().err


def test_the_probe_compiles_and_prints_two_rates():
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler")
    program = probe.compiled()
    assert program is not None
    read, fma = map(float, subprocess.check_output([program, "2", "8", "0.01"]).split())  # noqa: S603
    assert read > 0
    assert fma > 0
    assert subprocess.call([program, "0", "8", "1"]) == 2  # noqa: S603
    rates = probe.probe(1)
    assert rates.products.keys() == {"float32", "bfloat16", "int8"}
    assert min(rates.products.values()) > 0
    other = replace(rates, products=dict.fromkeys(rates.products, 0.0))
    assert probe.middle_of([rates, other, rates]) == rates


def test_the_description_of_the_machine_is_json():
    found = host.describe()
    assert found["cores"] >= 1
    assert json.dumps(found)


def test_cpu_and_memory_of_a_process_tree():
    assert os.getpid() in host.tree(os.getppid())
    before = host.usage(os.getpid())
    assert before.resident_mb > 1
    assert host.between(before, host.usage(os.getpid()))["rss_mb"] > 1


def test_what_ended_children_and_pauses_took_counts_for_nobody():
    """A pause of 1 s, in which a child used 2 s, and others and the server a quarter each."""
    before = host.Usage(at=10, busy=50, stolen=0, tree=20, own=5, children=1, resident_mb=9)
    start = replace(before, at=11, busy=51, tree=20.5, own=5.25)
    end = replace(start, at=12, busy=53.5, tree=20.75, children=3)
    after = replace(end, at=13, busy=54.5, tree=21.25, own=5.5)
    found = host.between(before, after, [(start, end)])
    assert (found["server_cpu_pct"], found["client_cpu_pct"]) == (50, 25)
    assert found["other_cpu_pct"] == 25


@pytest.mark.parametrize("is_busy", [True, False])
def test_a_probe_says_whether_the_server_works(is_busy):
    program = f"print(flush=True)\n{'while True: pass' if is_busy else 'input()'}"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as server:  # noqa: S603
        server.stdout.readline()  # it has started
        probes = Probes(server.pid)
        probes.take()
        assert probes.pauses == []
        probes.take()
        server.kill()
    assert [probed.is_busy for probed in probes.taken] == [is_busy, is_busy]
    assert all(probed.rates.read_gbs > 0 for probed in probes.taken)
    assert probes.pauses == [(probes.taken[1].before, probes.taken[1].after)]
