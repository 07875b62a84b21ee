"""llama.cpp's ``samplers``: the methods of sampling that a request uses, by names or by letters."""

from __future__ import annotations

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

_OFF: dict[str, dict[str, tuple[float | None, ...]]] = {
    "penalties": {
        "frequency_penalty": (None, 0),
        "presence_penalty": (None, 0),
        "repetition_penalty": (None, 1),
    },
    "top_k": {"top_k": (None, 0, -1)},
    "top_p": {"top_p": (None, 1)},
    "min_p": {"min_p": (None, 0)},
    "temperature": {"temperature": (None, 1)},
}
"""The methods of this server: their fields, with the values that turn them off."""


def have_no_effect(value: str | list[str], request: SamplingFields) -> bool:
    """Whether the request means the same without ``samplers``.

    It names every method that the request turns on. Of the methods that only llama.cpp has, a field
    that turns one on is refused by its own name. The order is this server's.
    """
    names = _names(value)
    if not names:
        return True
    return names <= _NAMES and all(
        getattr(request, field) in off
        for method, fields in _OFF.items()
        if method not in names
        for field, off in fields.items()
    )


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
