"""The dashboard for Grafana asks for metrics that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from server.apis.operation.metrics import METRICS
from tests.docs.markdown import ROOT

DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "roseinfer.json").read_text("utf-8"))

NAME = re.compile(r"\b(?:roseinfer|vllm|process)[a-z0-9_:]*\b")
SELECTOR = re.compile(r"([a-z0-9_:]+)\{([^}]*)\}")
GROUPING = re.compile(r"\bby \(([^)]*)\)")
PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"}
FUNCTIONS = {"rate", "sum", "histogram_quantile", "max", "label_values", "by"}


def series() -> dict[str, set[str]]:
    """The labels of every time series of the endpoint, by its name."""
    found: dict[str, set[str]] = {name: set() for name in PROCESS}
    for metric in METRICS:
        for name in filter(None, (metric.name, metric.twin)):
            labels = set(metric.labels)
            if metric.kind == "histogram":
                found |= {f"{name}_count": labels, f"{name}_sum": labels}
                found[f"{name}_bucket"] = labels | {"le"}
            else:
                found[name] = labels
    return found


def panels(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in node.get("panels", ()):
        yield panel
        yield from panels(panel)


def queries() -> list[str]:
    return [target["expr"] for panel in panels(DASHBOARD) for target in panel.get("targets", ())]


@pytest.mark.parametrize("query", queries())
def test_every_query_of_the_dashboard_asks_for_series_that_exist(query: str) -> None:
    known = series()
    names = set(NAME.findall(query))
    assert names
    assert names <= known.keys()
    assert query.count("(") == query.count(")")
    labels_asked = set()
    for name, selectors in SELECTOR.findall(query):
        labels = known[name] | {"instance"}
        asked = {part.split("=")[0].rstrip("!~ ") for part in selectors.split(",") if part}
        assert asked <= labels, (name, asked)
    for group in GROUPING.findall(query):
        labels_asked |= {label.strip() for label in group.split(",")}
    assert labels_asked <= set().union(*(known[name] for name in names)) | {"instance"}
    words = set(re.findall(r"\b([a-z_]+)\(", query))
    assert words <= FUNCTIONS, "is that a function of PromQL?"


def test_counters_are_read_as_rates_and_gauges_are_not() -> None:
    for query in queries():
        for name, rest in re.findall(r"\b((?:roseinfer|process)[a-z0-9_]*)\{[^}]*\}(\[?)", query):
            is_total = name.endswith(("_total", "_bucket", "_sum", "_count"))
            assert bool(rest) == is_total, query


def test_every_group_of_metrics_is_in_the_dashboard() -> None:
    asked = set().union(*(NAME.findall(query) for query in queries()))
    shown = {m.name for m in METRICS if any(name.startswith(m.name) for name in asked)}
    assert {m.name for m in METRICS} - shown <= {"roseinfer_prompt_tokens_total"}


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    found = list(panels(DASHBOARD))
    assert len({panel["id"] for panel in found}) == len(found)
    taken: set[tuple[int, int]] = set()
    for panel in found:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
