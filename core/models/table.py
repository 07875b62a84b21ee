"""table_of: a spec as lines of text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from core.models.spec import DecoderSpec, Layer

_WIDTH = 72
"""Characters of a value in a line."""

_MAX_RANGES = 4
"""Ranges of layers that are named."""


def table_of(spec: DecoderSpec) -> list[str]:
    """The fields that are not at their defaults, with equal layers together."""
    places: dict[Layer, list[int]] = {}
    for i, layer in enumerate(spec.layers):
        places.setdefault(layer, []).append(i)
    lines = list(_columns(spec))
    for layer, numbers in places.items():
        lines += [f"layers {_ranges(numbers)}", *(f"  {line}" for line in _columns(layer))]
    return lines


def _columns(part: Any) -> Iterator[str]:
    """Lines of names and values in two columns."""
    rows = dict(_fields(part))
    width = max(map(len, rows)) + 2
    for name, text in rows.items():
        for i, line in enumerate(textwrap.wrap(text, _WIDTH)):
            yield f"{'' if i else name:<{width}}{line}"


def _fields(part: Any) -> Iterator[tuple[str, str]]:
    for field in fields(part):
        value = getattr(part, field.name)
        if field.name != "layers" and (field.default is MISSING or value != field.default):
            yield field.name, _text(value)


def _text(value: Any) -> str:
    if is_dataclass(value):
        inner = ", ".join(
            name if text == "True" else f"{name} {text}" for name, text in _fields(value)
        )
        return f"{type(value).__name__}({inner})"
    if isinstance(value, tuple):
        return f"{len(value)} from {value[0]:.4g} to {value[-1]:.4g}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers, runs of them as ranges."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = [f"{a}" if a == b else f"{a} to {b}" for a, b in ranges[:_MAX_RANGES]]
    return ", ".join(shown + ["…"] * (len(ranges) > _MAX_RANGES))
