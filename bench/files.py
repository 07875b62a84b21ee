"""The files of a benchmark: its results as JSON, its charts."""

from __future__ import annotations

from collections.abc import Sequence

from bench.drawing.report_chart import report_chart
from bench.drawing.write import check_chart, write_chart
from bench.report import Report, Sweep, write_json
from bench.settings import BenchSettings


def check_files(settings: BenchSettings) -> None:
    """Raise BenchError if a chart could not be written, before anything is measured."""
    for file in settings.charts:
        check_chart(file)


def write_files(settings: BenchSettings, reports: Sequence[Report]) -> None:
    """Write what the settings name; a sweep has several reports. Raises BenchError."""
    if settings.json is not None:
        write_json(Sweep(levels=tuple(reports)) if settings.sweep else reports[0], settings.json)
    for file in settings.charts:
        write_chart(report_chart(reports), file)
