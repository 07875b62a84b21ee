"""What Prometheus gets: its own parsers read both formats, and every metric is there."""

from __future__ import annotations

import re

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse

from core.observe.histogram import Histogram
from server.apis.operation.exposition import render
from server.apis.operation.metrics import METRICS, Metric, read_all
from tests.support.asgi import ask

HOSTILE = 'a"b\\c\nd'


def family_name(metric: Metric, name: str) -> str:
    """The name of a family in the parsers, which drop the suffix of counters."""
    return name.removesuffix("_total") if metric.kind == "counter" else name


@pytest.fixture
async def serving(start_app):
    app = await start_app()
    assert (await ask(app, "POST", "/v1/completions", {"prompt": "x"})).status == 200
    return app.litestar.state.serving


@pytest.mark.anyio
async def test_prometheus_own_parser_accepts_the_page(serving):
    page = render(read_all(serving), model_name=HOSTILE).decode()
    families = {family.name: family for family in parse(page)}
    for metric in METRICS:
        for name in filter(None, (metric.name, metric.twin)):
            family = families[family_name(metric, name)]
            assert family.type == metric.kind
            assert family.documentation == metric.help
            assert family.samples, name
    assert families["process_cpu_seconds"].samples


@pytest.mark.anyio
async def test_the_parser_of_openmetrics_accepts_it_too(serving):
    """It is stricter about buckets, values and duplicates."""
    page = render(read_all(serving), model_name=HOSTILE).decode()
    counters = re.compile(r"^(# (?:HELP|TYPE) \S+)_total (.*)$", re.MULTILINE)
    families = list(parse_openmetrics(counters.sub(r"\1 \2", page) + "# EOF\n"))
    assert len(families) >= len(METRICS)


@pytest.mark.anyio
async def test_twins_have_the_same_values_and_vllms_labels(serving):
    page = render(read_all(serving), model_name=HOSTILE)
    families = {family.name: family for family in parse(page.decode())}
    num_twins = 0
    for metric in METRICS:
        if not metric.twin:
            continue
        num_twins += 1
        own = families[family_name(metric, metric.name)]
        twin = families[family_name(metric, metric.twin)]
        for ours, theirs in zip(own.samples, twin.samples, strict=True):
            assert theirs.value == ours.value
            assert theirs.labels == {**ours.labels, "model_name": HOSTILE, "engine": "0"}
    assert num_twins >= 8


def test_a_histogram_has_cumulative_buckets_count_and_sum():
    histogram = Histogram((0.5, 1.0))
    for value in (0.25, 0.5, 0.75, 8.0):
        histogram.observe(value)
    metric = Metric(name="x_seconds", kind="histogram", help="X.", read=lambda _s: 0.0)
    page = render([(metric, {(): histogram.read()})], model_name="m")
    [family] = [f for f in parse(page.decode()) if f.name == "x_seconds"]
    assert {(s.name, s.labels.get("le")): s.value for s in family.samples} == {
        ("x_seconds_bucket", "0.5"): 2,
        ("x_seconds_bucket", "1.0"): 3,
        ("x_seconds_bucket", "+Inf"): 4,
        ("x_seconds_count", None): 4,
        ("x_seconds_sum", None): 9.5,
    }


def test_a_value_of_the_wrong_kind_is_an_error():
    metric = Metric(name="x", kind="gauge", help="X.", read=lambda _s: 0.0)
    with pytest.raises(TypeError, match="x is no histogram"):
        render([(metric, {(): Histogram((1.0,)).read()})], model_name="m")


def test_names_follow_prometheus_rules():
    names = [metric.name for metric in METRICS] + [m.twin for m in METRICS if m.twin]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert metric.name.startswith("roseinfer_")
        for name in filter(None, (metric.name, metric.twin)):
            assert metric.kind == "histogram" or (metric.kind == "counter") == name.endswith(
                "_total"
            )
        assert metric.help.endswith(".")
