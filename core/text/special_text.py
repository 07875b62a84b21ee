"""SpecialText: prevents special tokens from being injected through message content.

Tokenizers turn the text of a special token into that token wherever it occurs, so a message with
``<|im_end|>`` would end its own turn. SpecialText puts a mark inside each such text before the
chat template is rendered, and the rendered text is split at the marks. No piece holds the whole
text, so no special token can form, and all other text stays as it is.
"""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Iterable, Iterator
from typing import Any


class SpecialText:
    """Finds the text of special tokens. Immutable; any thread may use it.

    Special tokens of a single character are not guarded against. A template that looks for
    special text in a message does not find it. The search time does not depend on the number of
    special tokens.
    """

    def __init__(self, contents: Iterable[str]) -> None:
        """``contents`` are the texts of the special tokens."""
        texts = {text for text in contents if len(text) > 1}
        self._pattern = re.compile(_any_of(texts)) if texts else None

    def occurs_in(self, value: Any) -> bool:
        """Whether any string in a JSON-like value contains special text; keys count."""
        match value:
            case str():
                return self._pattern is not None and self._pattern.search(value) is not None
            case dict():
                return any(self.occurs_in(key) or self.occurs_in(value[key]) for key in value)
            case list() | tuple():
                return any(self.occurs_in(item) for item in value)
            case _:
                return False

    def marked(self, value: Any, mark: str) -> Any:
        """Return a copy of a JSON-like value with ``mark`` inside each special text."""
        match value:
            case str():
                return mark.join(self._cut(value))
            case dict():
                return {
                    self.marked(key, mark): self.marked(item, mark) for key, item in value.items()
                }
            case list() | tuple():
                return [self.marked(item, mark) for item in value]
            case _:
                return value

    def _cut(self, text: str) -> Iterator[str]:
        """Cut after the first character of each special text, also of overlapping ones."""
        start = 0
        while self._pattern is not None and (found := self._pattern.search(text, start)):
            cut = found.start() + 1
            yield text[start:cut]
            start = cut
        yield text[start:]


def new_mark() -> str:
    """Draw a text that no client can guess.

    Templates leave digits alone: they have no case, are not trimmed and need no JSON escapes.
    """
    return f"{secrets.randbelow(10**32):032d}"


def parts_in(pieces: list[str], part: slice) -> list[str]:
    """Cut the pieces of a text to what lies in a part of the whole."""
    ends = list(itertools.accumulate(map(len, pieces)))
    if part.start <= 0 and part.stop >= ends[-1]:
        return pieces
    starts = [end - len(piece) for piece, end in zip(pieces, ends, strict=True)]
    return [
        piece[max(part.start - start, 0) : max(part.stop - start, 0)]
        for piece, start in zip(pieces, starts, strict=True)
    ]


def _any_of(texts: Iterable[str]) -> str:
    """Make a pattern for any of ``texts`` that tries each character of the input once.

    Where one text is a prefix of another, the pattern matches the shorter one.
    """
    branches = []
    for first, group in itertools.groupby(sorted(texts), key=lambda text: text[:1]):
        if not first:
            return ""
        alike = list(group)
        stem = _common_beginning(alike[0], alike[-1])  # sorted: their prefix is that of all
        branches.append(re.escape(stem) + _any_of(text[len(stem) :] for text in alike))
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def _common_beginning(one: str, other: str) -> str:
    pairs = zip(one, other, strict=False)
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
    return "".join(character for character, _ in same)
