"""Metadata: typed access to the keys of a GGUF file. It remembers which keys were read.

An unread key of the model's architecture could change what the model computes, so such keys are
refused by name: see ``check_all_read``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np

from core.contract.errors import ModelLoadError
from core.gguf.reader import Value
from core.gguf.strings import Strings

CONTROL = 3
"""The type of control tokens in ``tokenizer.ggml.token_type``."""


class Metadata:
    """The keys of a file. Every method raises ModelLoadError that names the key."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = values
        self._unread = set(values)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def text(self, key: str, default: str | None = None) -> str:
        """A string; ``default`` if the key is absent, unless that is None."""
        value = self._get(key, default)
        if not isinstance(value, str):
            raise ModelLoadError(f"{key} is not a string")
        return value

    def integer(
        self, key: str, default: int | None = None, *, least: int = 0, most: int = 1 << 31
    ) -> int:
        """An integer from ``least`` to ``most``, or an array of equal ones."""
        value = self._get(key, default)
        if isinstance(value, np.ndarray) and len(value) and (value == value[0]).all():
            value = value[0].item()
        if isinstance(value, np.ndarray):
            raise ModelLoadError(f"{key} differs between layers, which is not supported")
        if not isinstance(value, int) or isinstance(value, bool):
            raise ModelLoadError(f"{key} is not an integer")
        if not least <= value <= most:
            raise ModelLoadError(f"{key} is {value}, not in {least} to {most}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number."""
        value = self._get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ModelLoadError(f"{key} is not a number")
        if not math.isfinite(value):
            raise ModelLoadError(f"{key} is {value}")
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        """A boolean."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise ModelLoadError(f"{key} is not a boolean")
        return value

    def strings(self, key: str) -> Strings:
        """An array of strings, each of which is decoded when it is asked for."""
        value = self._get(key, None)
        if not isinstance(value, Strings):
            raise ModelLoadError(f"{key} is not an array of strings")
        return value

    def count(self, key: str) -> int:
        """The length of an array."""
        value = self._get(key, None)
        if not isinstance(value, Strings | np.ndarray):
            raise ModelLoadError(f"{key} is not an array")
        return len(value)

    def numbers(self, key: str) -> np.ndarray:
        """An array of numbers."""
        value = self._get(key, None)
        if not isinstance(value, np.ndarray):
            raise ModelLoadError(f"{key} is not an array of numbers")
        return value

    def pattern(self, key: str, every: int, count: int) -> list[bool]:
        """An array of ``count`` booleans, or all of them true but each ``every``-th one.

        The key may have another number for ``every``.
        """
        value = self._values.get(key, every)
        if isinstance(value, np.ndarray) and value.dtype == np.bool_:
            self._unread.discard(key)
            if len(value) != count:
                raise ModelLoadError(f"{key} has {len(value)} values for {count} layers")
            return [bool(each) for each in value]
        every = self.integer(key, every, least=1)
        return [(i + 1) % every != 0 for i in range(count)]

    def check_all_read(self, prefix: str, harmless: Collection[str]) -> None:
        """Refuse keys that begin with ``prefix``, are not ``harmless``, and were never read."""
        unread = sorted(
            key
            for key in self._unread
            if key.startswith(prefix) and key.removeprefix(prefix) not in harmless
        )
        if unread:
            raise ModelLoadError(
                f"its metadata has {', '.join(unread)}, which could change what the model "
                "computes and is not supported"
            )

    def _get(self, key: str, default: Value | None) -> Value:
        self._unread.discard(key)
        value = self._values.get(key, default)
        if value is None:
            raise ModelLoadError(f"its metadata lacks {key}")
        return value
