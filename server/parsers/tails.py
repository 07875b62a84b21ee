"""The tail of a text that may be the beginning of some marker and must be held back."""

from __future__ import annotations

import re
from functools import lru_cache


def held_from(text: str, wanted: tuple[str, ...], start: int = 0) -> int:
    """Return where the longest tail of ``text[start:]`` begins that may begin one of ``wanted``.

    Complete markers are not looked for. ``wanted`` must be a constant: its pattern is cached.
    """
    pattern, width = _tail(wanted)
    match = pattern.search(text, max(start, len(text) - width))
    return len(text) if match is None else match.start()


@lru_cache(maxsize=64)
def _tail(wanted: tuple[str, ...]) -> tuple[re.Pattern[str], int]:
    """Return a pattern of all proper prefixes at the end of a text, and their greatest length."""
    patterns = []
    for string in wanted:
        pattern = ""
        for character in reversed(string[:-1]):
            pattern = re.escape(character) + (f"(?:{pattern})?" if pattern else "")
        if pattern:
            patterns.append(pattern)
    width = max(map(len, wanted)) - 1
    return re.compile(rf"(?:{'|'.join(patterns)})\Z" if patterns else r"(?!)"), width
