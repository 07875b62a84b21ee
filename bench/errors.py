"""BenchError: what an operator can cause, in one clear line; exit code 2."""

from __future__ import annotations


class BenchError(Exception):
    """The benchmark cannot begin, or its results cannot be kept."""
