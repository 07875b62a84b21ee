"""Published results: what new lines replace."""

import json
import sys

from benchmarks import publish
from benchmarks.goals import BEGIN as GOALS
from benchmarks.lines import read_lines
from benchmarks.publish import merged
from benchmarks.table import BEGIN, END
from tests.benchmarks.test_table import LINES, SESSION, line

AVX512 = SESSION | {
    "session": "later",
    "scale": 1.0,
    "machine": SESSION["machine"] | {"features": ["avx512f"]},
}
OLD = [SESSION | {"scale": 1.0}, *LINES]


def test_results_of_another_machine_stand_beside_the_old_ones():
    new = [AVX512, line("roseinfer", "s2", tok_s=2000, session="later")]
    assert merged(OLD, new) == [*OLD, *new]


def test_new_runs_of_a_scenario_replace_those_of_the_same_machine():
    session = SESSION | {"session": "later", "scale": 1.0}
    new = [session, line("roseinfer", "s2", tok_s=2000, session="later")]
    others = [line for line in LINES if line["scenario"] != "s2"]
    assert 0 < len(others) < len(LINES) - 1, "servers of the same scenario are in one session"
    assert merged(OLD, new) == [OLD[0], *others, *new]
    other = line("roseinfer", "s2", tok_s=1, model="qwen3-0.6b")
    assert merged([*OLD, other], new) == [OLD[0], *others, other, *new]


def test_publishing_twice_changes_nothing():
    new = [AVX512, line("roseinfer", "s2", tok_s=2000, session="later")]
    once = merged(OLD, new)
    assert merged(once, new) == once
    assert merged(once, []) == once


def test_one_command_writes_results_tables_and_chart(tmp_path, monkeypatch):
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(x) + "\n" for x in OLD))
    marks = f"{GOALS}\n{END}\n{BEGIN}\n{END}\n"
    (tmp_path / "RESULTS.md").write_text(f"# Results\n{marks}notes\n")
    new = tmp_path / "new.jsonl"
    run = line("roseinfer", "s2", tok_s=2345, rss_mb=1, session="later")
    new.write_text(json.dumps(AVX512) + "\n" + json.dumps(run) + "\n")
    arguments = [str(new), "--folder", str(tmp_path), "--chart", str(tmp_path / "chart.svg")]
    monkeypatch.setattr(sys, "argv", ["publish", *arguments])
    publish.main()
    assert len(read_lines([tmp_path / "results.jsonl"])) == len(OLD) + 2
    document = (tmp_path / "RESULTS.md").read_text()
    assert "2,345" in document
    assert "| GPT-2 S2 tok/s | 2,345 |" in document.partition(BEGIN)[0]
    assert "### Machines side by side" in document
    assert document.endswith("notes\n")
    assert "2,345" in (tmp_path / "chart.svg").read_text()
