from __future__ import annotations

from xml.etree import ElementTree as ET

import msgspec
import pytest

from bench import command
from bench.drawing.plot import Axis
from bench.drawing.report_chart import report_chart
from bench.drawing.write import check_chart, png_of, write_chart
from bench.errors import BenchError
from bench.figures import curves_of, summarize
from bench.records import RequestTimes
from bench.report import RunResult, make_report, render_sweep
from bench.settings import BenchSettings, EngineTarget, Pace, Workload
from core.contract.config import EngineConfig, ModelConfig

SVG = "{http://www.w3.org/2000/svg}"


def record(ttft, gap):
    return RequestTimes(
        submit=1.0,
        token_times=[1 + ttft, 1 + ttft + gap, 1 + ttft + 2 * gap],
        end=1.5 + ttft,
        completion_tokens=3,
        status=200,
        finish_reason="length",
    )


def report(concurrency, scale):
    records = [record(0.1 * scale * i, 0.01 * scale) for i in range(1, 5)]
    run = RunResult(client=summarize(records), cpu_share=0.5, curves=curves_of(records))
    settings = BenchSettings(pace=Pace(concurrency=concurrency))
    return make_report("m at http://x", settings, [run, run])


def texts(document):
    return [text.text for text in ET.fromstring(document).iter(f"{SVG}text")]  # noqa: S314


def lines(document, kind):
    found = ET.fromstring(document).iter(f"{SVG}polyline")  # noqa: S314
    return [
        [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        for line in found
        if line.get("class") == f"curve {kind}"
    ]


def test_a_report_has_a_distribution_for_each_kind_of_latency():
    document = report_chart([report(None, 1)])
    names = texts(document)
    assert {"Time to first token", "Inter-token latency", "Latency of a request"} <= set(names)
    assert not any("Throughput" in name for name in names)
    ttft, gap, latency = lines(document, "c0")
    for curve in (ttft, latency):
        assert curve == sorted(curve, key=lambda point: (point[0], -point[1]))
    assert len({x for x, _ in gap}) == 1  # all gaps are equal
    assert report_chart([report(None, 1)]) == document


def test_the_ends_of_a_distribution_are_its_values():
    """The axis goes to the first round number beyond the 99th percentile."""
    ttft, *_ = lines(report_chart([report(None, 1)]), "c0")
    (x_min, _), (x_max, _) = ttft[0], ttft[-1]
    axis = Axis.up_to("", 397)
    assert axis.ticks[-1] == 400
    left, width = 24 + 52, 430 - 52 - 16
    assert x_min == pytest.approx(left + width * 100 / 400, abs=0.2)
    assert x_max == pytest.approx(left + width * 397 / 400, abs=0.2)


def test_a_sweep_has_throughput_against_latency():
    document = report_chart([report(1, 1), report(2, 2), report(4, 3)])
    assert "Throughput against latency, by concurrency" in texts(document)
    throughput, *_ = lines(document, "c0")
    assert len(throughput) == 3
    assert [x for x, _ in throughput] == sorted(x for x, _ in throughput)
    assert {"1", "2", "4", "1 in flight", "4 in flight"} <= set(texts(document))
    assert len(lines(document, "c2")) == 3


def test_many_levels_show_the_first_and_the_last():
    document = report_chart([report(2**i, 1 + i) for i in range(9)])
    names = [name for name in texts(document) if name.endswith("in flight")]
    assert len(names) == 6
    assert (names[0], names[-1]) == ("1 in flight", "256 in flight")


def test_a_report_without_answers_is_drawn_empty():
    run = RunResult(client=summarize([]), cpu_share=0.5, curves=curves_of([]))
    empty = make_report("x & y", BenchSettings(), [run])
    assert "roseinfer bench: x & y" in texts(report_chart([empty, empty]))


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (397, (0, 100, 200, 300, 400)),
        (0.7, (0, 0.2, 0.4, 0.6, 0.8)),
        (0, (0, 1)),
        (5, tuple(range(6))),
    ],
)
def test_ticks_are_round(most, ticks):
    assert Axis.up_to("", most).ticks[: len(ticks)] == pytest.approx(ticks)


def test_a_png_has_the_pixels_of_the_chart(tmp_path):
    pytest.importorskip("resvg_py")
    document = report_chart([report(None, 1)])
    try:
        write_chart(document, tmp_path / "x.png")
    except BenchError as error:
        pytest.skip(str(error))  # no font
    data = (tmp_path / "x.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(data[i : i + 4]) for i in (16, 20))
    box = ET.fromstring(document).get("viewBox")  # noqa: S314
    assert box == f"0 0 {width // 2} {height // 2}"
    assert png_of(document) != png_of(document.replace("Inter-token", "Other"))


def test_a_chart_that_cannot_be_written_is_refused_before_the_runs(tmp_path):
    with pytest.raises(BenchError, match="no such directory"):
        check_chart(tmp_path / "no" / "x.svg")


def test_a_sweep_measures_each_level_and_draws(tiny, tmp_path, capsys):
    settings = BenchSettings(
        target=EngineTarget(
            model=ModelConfig(model=str(tiny)),
            engine=EngineConfig(max_model_len=64, kv_cache_memory=2**20),
        ),
        workload=Workload(num_requests=4, length=(4, 4), max_new_tokens=3),
        sweep=(1, 2),
        warmup_runs=0,
        json=tmp_path / "x.json",
        charts=(tmp_path / "x.svg",),
    )
    assert command.run(settings) == 0
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table[-2:]] == ["1", "2"]
    levels = msgspec.json.decode((tmp_path / "x.json").read_bytes())["levels"]
    assert [level["settings"]["pace"]["concurrency"] for level in levels] == [1, 2]
    assert all(len(level["runs"][0]["curves"]["latency_ms"]) == 101 for level in levels)
    assert "1 in flight" in texts((tmp_path / "x.svg").read_text())


def test_a_level_that_was_not_answered_says_so():
    failed = RequestTimes(submit=1.0, end=2.0, error="no", status=500)
    run = RunResult(client=summarize([record(0.1, 0.01), failed]), cpu_share=0.5)
    settings = BenchSettings(pace=Pace(concurrency=3))
    shown = render_sweep([make_report("m", settings, [run])])
    assert shown.splitlines()[-1].endswith("1 not answered")
