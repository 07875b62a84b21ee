"""llama.cpp's ``samplers``: the methods of sampling that a request uses, by names or by letters."""

from __future__ import annotations

import msgspec

from core.contract.params import SamplingParams
from schemas.sampling import SamplingFields

_LETTERS = {
    "a": "adaptive_p",
    "d": "dry",
    "e": "penalties",
    "f": "tfs_z",
    "k": "top_k",
    "m": "min_p",
    "p": "top_p",
    "s": "top_n_sigma",
    "t": "temperature",
    "x": "xtc",
    "y": "typ_p",
}
_OTHER_NAMES = {"nucleus": "top_p", "temp": "temperature", "typical_p": "typ_p", "typical": "typ_p"}
_NAMES = frozenset(_LETTERS.values())

_OFF = {field.name: field.default for field in msgspec.structs.fields(SamplingParams)}
_METHODS = {
    name: method
    for name in SamplingFields.__struct_fields__
    if name in _OFF and (method := "penalties" if name.endswith("_penalty") else name) in _NAMES
}
"""The fields that turn methods of this server on, with llama.cpp's names of the methods."""


def have_no_effect(value: str | list[str], request: SamplingFields) -> bool:
    """Whether the request means the same without ``samplers``.

    It names every method that the request turns on. Of the methods that only llama.cpp has, a field
    that turns one on is refused by its own name. The order is this server's.
    """
    names = _names(value)
    if not names:
        return True
    needed = {method for name, method in _METHODS.items() if _is_on(name, getattr(request, name))}
    return needed <= names <= _NAMES


def _is_on(name: str, value: float | None) -> bool:
    return value is not None and value != _OFF[name] and (name, value) != ("top_k", -1)


def _names(value: str | list[str]) -> set[str]:
    """The methods in llama.cpp's spelling. ``edkypmxt`` has a letter for each."""
    if isinstance(value, str):
        name = _plain(value)
        is_name = ";" in value or name in _NAMES
        value = value.split(";") if is_name else [_LETTERS.get(letter, letter) for letter in value]
    return {_plain(name) for name in value if name.strip()}


def _plain(name: str) -> str:
    name = name.strip().lower().replace("-", "_")
    return _OTHER_NAMES.get(name, name)
