"""The chart of a comparison."""

import json
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks import chart as script
from benchmarks.chart import chart
from benchmarks.lines import read_lines
from tests.benchmarks.test_table import LINES, SESSION, line

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
MACHINE = SESSION | {"scale": 1.0}


def texts(document):
    return [text.text for text in ET.fromstring(document).iter(f"{SVG}text")]  # noqa: S314


def bars(document, kind):
    found = ET.fromstring(document).iter(f"{SVG}rect")  # noqa: S314
    return [float(bar.get("width")) for bar in found if bar.get("class") == f"bar-{kind}"]


def test_the_committed_chart_is_drawn_from_the_committed_results():
    drawn = chart(read_lines([ROOT / "benchmarks" / "results.jsonl"]))
    assert drawn == (ROOT / "docs" / "images" / "benchmarks.svg").read_text("utf-8")


def test_the_script_writes_the_chart(tmp_path, monkeypatch):
    results, out = tmp_path / "results.jsonl", tmp_path / "chart.svg"
    lines = [MACHINE, *LINES]
    results.write_text("".join(json.dumps(each) + "\n" for each in lines))
    monkeypatch.setattr(sys, "argv", ["chart", str(results), "--out", str(out)])
    script.main()
    assert out.read_text("utf-8") == chart(lines)


def test_bars_are_medians_on_a_common_scale():
    document = chart([MACHINE, *LINES])
    assert {"GPT-2", "roseinfer bfloat16", "llama.cpp bf16", "100", "66.7"} <= set(texts(document))
    assert {"800", "400", "1,000", "3,000"} <= set(texts(document))
    one_stream, rate, memory = bars(document, "us")
    assert rate == pytest.approx(2 * bars(document, "peer")[1], abs=0.1)
    assert memory == pytest.approx(bars(document, "peer")[2] / 3, abs=0.1)
    assert one_stream == rate > memory


def test_every_server_with_results_has_a_row_and_the_bare_engine_has_none():
    more = [
        line("vLLM", "s2", tok_s=700, rss_mb=5000),
        line("roseinfer int8", "s2", tok_s=900, rss_mb=700, weights="int8", is_variant=True),
        line("llama.cpp q8_0", "s2", tok_s=500, rss_mb=900, weights="q8_0", is_variant=True),
    ]
    names = texts(chart([MACHINE, *LINES, *more]))
    order = ["roseinfer bfloat16", "llama.cpp bf16", "vLLM", "roseinfer int8", "llama.cpp q8_0"]
    assert [name for name in names if name in order] == order
    assert "roseinfer in process" not in names
    assert names.count("not measured") == 3  # one stream of the three new rows


def test_a_model_without_a_scenario_of_the_columns_is_left_out():
    long = line("roseinfer", "context-8k", tok_s=50, model="seventh")
    assert chart([MACHINE, *LINES, long]) == chart([MACHINE, *LINES])


def test_cut_runs_have_a_tilde():
    cut = line("x & y", "s2", tok_s=50, rss_mb=100, is_cut=True)
    assert {"~50.0", "x & y"} <= set(texts(chart([MACHINE, *LINES, cut])))


def test_the_last_machine_is_drawn_first():
    machine = SESSION["machine"] | {"features": ["avx512f"], "cpu": "Later CPU"}
    later = MACHINE | {"session": "2026-11-22T00:00:00Z", "machine": machine, "scale": 0.5}
    run = line("roseinfer", "s2", tok_s=1234, rss_mb=10, session=later["session"], scale=0.5)
    names = texts(chart([MACHINE, *LINES, later, run]))
    heads = [name for name in names if " cores), 2026-" in name]
    assert heads == [
        "Later CPU (avx512f; 2 cores), 2026-11-22; 0.5 of each scenario's work",
        "Some CPU (avx2, fma; 2 cores), 2026-11-21",
    ]
    assert names.index("1,234") < names.index("800")


def test_a_machine_shows_its_last_group_of_each_model():
    again = line("roseinfer", "s2", tok_s=1234, rss_mb=10, scale=0.5)
    names = texts(chart([MACHINE, *LINES, again]))
    assert "1,234" in names
    assert "800" not in names
