"""Puts new results beside the published ones and makes the tables and the chart from all of them.

    python -m benchmarks.publish NEW.jsonl [MORE.jsonl] [--folder benchmarks] [--chart FILE]

The lines go to ``results.jsonl`` in the folder. New runs of a scenario with a model on a machine
(its CPU features and cores) replace all older runs of it, so that servers are compared within one
session; all other results stay. Then the tables and the goals of ``RESULTS.md`` and the chart are
made again. ``python -m benchmarks.publish`` alone only does that.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.chart import DEFAULT_OUT, DEFAULT_RESULTS, chart
from benchmarks.goals import BEGIN as GOALS
from benchmarks.goals import goals
from benchmarks.lines import Line, machine_name, read_lines
from benchmarks.table import put_into, tables


def merged(old: Sequence[Line], new: Sequence[Line]) -> list[Line]:
    """The lines of both without what the new ones replace. Sessions without lines are dropped."""
    machines = {
        line["session"]: machine_name(line["machine"])
        for line in (*old, *new)
        if line["kind"] == "session"
    }

    def place(line: Line) -> tuple[str, ...]:
        """Machine, model, kind and scenario of a run; the server in place of it for other lines."""
        what = line["scenario"] if line["kind"] == "run" else line["contender"]
        return machines[line["session"]], line["model"], line["kind"], what

    replaced = {place(line) for line in new if line["kind"] != "session"}
    kept = [line for line in old if line["kind"] == "session" or place(line) not in replaced]
    together = [*kept, *(line for line in new if line not in kept)]
    used = {line["session"] for line in together if line["kind"] != "session"}
    return [line for line in together if line["session"] in used]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--folder", type=Path, default=DEFAULT_RESULTS.parent)
    parser.add_argument("--chart", type=Path, default=DEFAULT_OUT)
    options = parser.parse_args()
    results, document = options.folder / "results.jsonl", options.folder / "RESULTS.md"
    lines = merged(read_lines([results]), read_lines(options.files))
    results.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    text = put_into(document.read_text("utf-8"), tables(lines))
    document.write_text(put_into(text, goals(lines), GOALS), "utf-8")
    options.chart.write_text(chart(lines), "utf-8")


if __name__ == "__main__":
    main()
