"""FirstOfPairs: one text that a model reads together with each of several others."""

from __future__ import annotations

from typing import Any

from core.contract.errors import InvalidRequest


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
