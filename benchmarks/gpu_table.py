"""Makes a section of RESULTS.md from the lines of ``benchmarks.gpu_check --json``.

    python -m benchmarks.gpu_table results.jsonl [more.jsonl] [--into benchmarks/RESULTS.md]

Prints the section, or replaces the text between two marks of a document; a document without the
marks gets them at its end. If a measurement was repeated, the last one counts.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]

BEGIN, END = "<!-- begin: made by benchmarks/gpu_table.py -->", "<!-- end of it -->"

TITLES = {
    "tok_s": "tok/s",
    "ttft_p50_ms": "TTFT p50",
    "ttft_p99_ms": "TTFT p99",
    "tpot_p50_ms": "TPOT",
    "itl_p50_ms": "gap p50",
    "itl_p99_ms": "gap p99",
    "long_ttft_ms": "long TTFT",
    "gap_max_ms": "worst gap",
    "step_floor_ms": "step floor",
    "step_ratio": "gap p50 / floor",
    "floor_tok_s": "limit tok/s",
    "num_cached_tokens": "cached",
}
"""Columns of parts that run a load. Times are in milliseconds."""

HIDDEN = {"part", "at", "name", "ok"}


def section(rows: Iterable[Row]) -> str:
    """Markdown of the machine, then of every part."""
    last = {(row["part"], row["name"]): row for row in rows if not row["name"].endswith(" took")}
    parts: dict[str, list[Row]] = {}
    for (part, _), row in last.items():
        parts.setdefault(part, []).append(row)
    if not parts:
        return "No results."
    day = time.strftime("%Y-%m-%d", time.gmtime(max(row["at"] for row in last.values())))
    machine = parts.pop("machine", [])
    lines = [f"**{day}**" + "".join(f", {_figures(row)}" for row in machine), ""]
    failed = [f"{row['part']}: {row['name']}" for row in last.values() if row.get("ok") is False]
    lines += [f"Failed: {'; '.join(failed)}.", ""] if failed else []
    for part, own in parts.items():
        is_load = any("tok_s" in row for row in own)
        lines += [f"### {part}", "", *(_load_table(own) if is_load else _list(own)), ""]
    return "\n".join(lines).strip()


def put_into(document: str, made: str) -> str:
    """The document with ``made`` between the marks."""
    before, begin, rest = document.partition(BEGIN)
    after = rest.partition(END)[2] if begin else "\n"
    return f"{before.rstrip()}\n\n{BEGIN}\n\n{made}\n\n{END}{after}"


def _load_table(rows: list[Row]) -> list[str]:
    keys = [key for key in TITLES if any(key in row for row in rows)]
    lines = [
        "| | " + " | ".join(TITLES[key] for key in keys) + " |",
        "| --- |" + " --: |" * len(keys),
    ]
    for row in rows:
        if "tok_s" in row:
            cells = [_number(row[key]) if key in row else "-" for key in keys]
        else:
            cells = [_figures(row), *[""] * (len(keys) - 1)]
        lines.append(f"| {_name(row)} | " + " | ".join(cells) + " |")
    return lines


def _list(rows: list[Row]) -> list[str]:
    return [f"- {_name(row)}: {_figures(row)}" for row in rows]


def _name(row: Row) -> str:
    failed = " **failed**" if row.get("ok") is False else ""
    return f"{row['name']}{failed}"


def _figures(row: Row) -> str:
    shown = {key: value for key, value in row.items() if key not in HIDDEN}
    return ", ".join(f"{key} {_number(value)}" for key, value in shown.items()) or "ok"


def _number(value: Any) -> str:
    """Three significant digits."""
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--into", type=Path, help="a document")
    options = parser.parse_args()
    texts = [file.read_text("utf-8") for file in options.files]
    made = section(json.loads(line) for text in texts for line in text.splitlines())
    if options.into is None:
        print(made)
    else:
        options.into.write_text(put_into(options.into.read_text("utf-8"), made), "utf-8")


if __name__ == "__main__":
    main()
