"""Rows of results: a part of the check yields them one by one."""

from __future__ import annotations

from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]
"""Figures by name. ``name`` is required; ``ok`` is whether a check passed."""

REPORTED = (
    "tok_s",
    "ttft_p50_ms",
    "ttft_p99_ms",
    "tpot_p50_ms",
    "itl_p50_ms",
    "itl_p99_ms",
    "itl_max_ms",
    "num_errors",
    "first_error",
    "num_cached_tokens",
    "wall_s",
    "long_ttft_ms",
    "gap_quiet_p50_ms",
    "gap_p50_ms",
    "gap_max_ms",
)


def row_of(found: Row) -> Row:
    """The reported figures of a run of ``benchmarks.load``."""
    row = {key: found[key] for key in REPORTED if found.get(key) is not None}
    return row | {"ok": found["num_errors"] == 0 and found["num_ended"] == found["num_sent"]}


def in_one_line(error: Exception) -> str:
    """The start of an error message."""
    return " ".join(str(error).split())[:200]
