"""BenchError: an error that the operator can cause; reported in one line, with exit code 2."""

from __future__ import annotations


class BenchError(Exception):
    """The benchmark cannot start, or its results cannot be written."""
