"""The commands of ``python -m benchmarks.fleet``, and what docs/sizing.md shows of them."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.fleet import __main__ as program
from benchmarks.fleet.machine import read_machine
from benchmarks.fleet.scenario_load import simulate_scenario
from benchmarks.scenarios import scenarios

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "sizing.md").read_text("utf-8")
MACHINE = program.MACHINES / "xeon-amx-2-qwen3-0.6b.json"
SMALL = "--warm-up 20 --seconds 60 --sessions 30,60 --policies round-robin,bounded --system 100"


def output_of(command, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fleet", *shlex.split(command)])
    monkeypatch.setattr(program.gc, "disable", lambda: None)
    monkeypatch.chdir(ROOT)
    program.main()
    return capsys.readouterr().out


def commands_of(name):
    """The commands of the page that run ``python -m benchmarks.fleet NAME``."""
    start = f"python -m benchmarks.fleet {name}"
    lines = [line for line in PAGE.splitlines() if "mine.json" not in line]
    return [
        line.removeprefix("python -m benchmarks.fleet ") for line in lines if line.startswith(start)
    ]


def rows_of(text):
    return [line for line in text.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize("command", commands_of("validate"))
def test_the_page_shows_what_validation_prints(command, monkeypatch, capsys):
    rows = rows_of(output_of(command, monkeypatch, capsys))
    assert len(rows) > 10
    assert all(row in PAGE for row in rows if not row.startswith("| -"))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["bounded", "least-loaded"])
def test_the_page_shows_what_a_comparison_finds(policy, monkeypatch, capsys):
    text = output_of(f"compare --sessions 60 --policies {policy}", monkeypatch, capsys)
    cells = rows_of(text)[2].strip("| ").split(" | ")
    cached, ttft_p50, ttft_p99, tpot, rate, good = cells[3:9]
    expected = "60", policy, cached, ttft_p50, ttft_p99, tpot, f"{good} of {rate}"
    assert f"| {' | '.join(expected)} |" in PAGE


def test_a_shared_prefix_is_computed_once_as_in_the_measured_run():
    """31 of 32 requests of S4 find all of it; see num_cached_tokens in results.jsonl."""
    machine = read_machine(MACHINE)
    outcome, _ = simulate_scenario(machine, scenarios(machine.max_model_len)["s4"])
    assert sum(request.num_cached for request in outcome.requests) == 31 * 1024


def test_streams_that_follow_a_request_begin_at_its_end_and_share_its_prefix():
    machine = read_machine(MACHINE)
    scenario = scenarios(machine.max_model_len)["context-8k"]
    outcome, first = simulate_scenario(machine, scenario)
    assert len(outcome.requests) == 8
    assert {request.arrival for request in outcome.requests} == {first.end}
    assert {request.num_cached for request in outcome.requests} == {scenario.prefix_words}


def test_compare_prints_a_line_for_each_case(monkeypatch, capsys):
    text = output_of(f"compare --machine {MACHINE} --replicas 1,2 {SMALL}", monkeypatch, capsys)
    rows = rows_of(text)
    assert len(rows) == 2 + 2 * 2 * 2
    assert "nan" not in text
    assert rows[2].replace("round-robin", "bounded") == rows[3]  # one replica
    assert "events in" in text


def test_fit_prints_every_step(monkeypatch, capsys):
    text = output_of(f"fit --machine {MACHINE}", monkeypatch, capsys)
    assert text.count("fitted") == len(read_machine(MACHINE).steps)


def test_chart_draws_a_curve_for_each_policy(monkeypatch, capsys, tmp_path):
    out = tmp_path / "c.svg"
    output_of(f"chart --machine {MACHINE} --replicas 2 {SMALL} --out {out}", monkeypatch, capsys)
    lines = list(ET.parse(out).iter("{http://www.w3.org/2000/svg}polyline"))  # noqa: S314
    assert len(lines) == 2 * 2 + 2  # of both plots, and of the legend
    first = out.read_text()
    output_of(f"chart --machine {MACHINE} --replicas 2 {SMALL} --out {out}", monkeypatch, capsys)
    assert out.read_text() == first


def test_results_of_other_machines_do_not_count(monkeypatch, capsys, tmp_path):
    session = {"kind": "session", "session": "a", "machine": {"features": ["avx2"], "cores": 2}}
    names = {"kind": "run", "session": "a", "model": "qwen3-0.6b", "scenario": "s1", "scale": 1.0}
    run = names | {"is_cut": False, "num_errors": 0, "tok_s": 12.0}
    results = tmp_path / "r.jsonl"
    results.write_text("".join(json.dumps(line) + "\n" for line in (session, run)))
    command = f"validate --machine {MACHINE} --results {results} --model qwen3-0.6b"
    assert len(rows_of(output_of(command, monkeypatch, capsys))) == 2
    assert len(rows_of(output_of(f"{command} --on avx2", monkeypatch, capsys))) == 3
