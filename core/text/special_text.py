"""SpecialText: prevents special tokens from being injected through message content.

Tokenizers turn the text of a special token into that token wherever it occurs, so a message with
``<|im_end|>`` would end its own turn. SpecialText puts a mark inside each such text before the
chat template is rendered, and the rendered text is split at the marks. No piece holds the whole
text, so no special token can form, and all other text stays as it is.

FirstOfPairs: tokenizes pairs of texts with the same first one.
"""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Iterable, Iterator
from typing import Any

from core.contract.errors import InvalidRequest


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


class FirstOfPairs:
    """The first text of pairs. It is tokenized once, if the tokenizer can join encodings.

    ``backend`` is a ``tokenizers.Tokenizer``. Any thread. Raises InvalidRequest for text that is
    not valid Unicode.
    """

    def __init__(self, backend: Any, text: str, *, has_types: bool, joins_encodings: bool) -> None:
        """``has_types``: the model tells the two texts apart."""
        self._backend = backend
        self._text = text
        self._encoding = _encoded(backend, text, add_special_tokens=False)
        self._has_types = has_types
        self._joins_encodings = joins_encodings

    def __len__(self) -> int:
        """Tokens of the text alone."""
        return len(self._encoding.ids)

    def with_second(self, text: str) -> tuple[list[int], int]:
        """The ids of a pair, and where its second text starts.

        That is the number of ids if the model does not tell the two apart.
        """
        if self._joins_encodings:
            second = _encoded(self._backend, text, add_special_tokens=False)
            pair = self._backend.post_process(self._encoding, second, add_special_tokens=True)
        else:
            pair = _encoded(self._backend, (self._text, text), add_special_tokens=True)
        ids: list[int] = pair.ids
        return ids, pair.type_ids.count(0) if self._has_types else len(ids)


def joins_encodings(backend: Any) -> bool:
    """Whether two encodings become what the tokenizer makes of both texts at once.

    Not if nothing says which of the two types a token has: a text alone has the first one.
    """
    pair = _encoded(backend, ("a b", "c d"), add_special_tokens=True)
    first, second = (_encoded(backend, text, add_special_tokens=False) for text in ("a b", "c d"))
    joined = backend.post_process(first, second, add_special_tokens=True)
    return bool(joined.ids == pair.ids and joined.type_ids == pair.type_ids)


def _encoded(backend: Any, given: str | tuple[str, str], *, add_special_tokens: bool) -> Any:
    """An encoding. Of a batch of one: see ``Tokenizer.encode``."""
    # "fast" gives the second text of a pair the first type, unless a processor says otherwise
    encode = backend.encode_batch_fast if isinstance(given, str) else backend.encode_batch
    try:
        return encode([given], add_special_tokens=add_special_tokens)[0]
    except (TypeError, UnicodeError) as error:
        raise InvalidRequest("The text is not valid Unicode: a lone surrogate.") from error
