"""The most bytes of text in one token, for a lower bound on the tokens of a long text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from core.text.vocabulary import byte_alphabet

_NORMALIZERS = dict.fromkeys(("NFC", "NFD", "NFKC", "NFKD"), 4)
"""Factors by which Unicode normalisation shortens UTF-8 at most: a mathematical letter of four
bytes becomes an ASCII letter."""

_LOSSLESS_SPLITS = {"ByteLevel", "Metaspace", "Digits"}

_MODELS = {"BPE", "Unigram"}
"""Other models take a whole word for unknown."""

_WORD_MARKS = ("continuing_subword_prefix", "end_of_word_suffix")
"""Options of models whose characters have other tokens within a word, or at its end."""

_UTF8 = frozenset(range(256)) - {0xC0, 0xC1, *range(0xF5, 0x100)}
"""The bytes that a text may have."""


def takes_blanks(backend: Any) -> bool:
    """Whether an added token takes all blanks beside it (lstrip, rstrip).

    ``backend`` is a ``tokenizers.Tokenizer``, or None.
    """
    return backend is not None and any(token.lstrip or token.rstrip for token in _added(backend))


def max_bytes_per_token(backend: Any) -> int | None:
    """The most bytes of a text that become one token; None if there is no bound.

    ``backend`` is a ``tokenizers.Tokenizer``. A bound exists where every byte of the text is in
    some token: the vocabulary covers all bytes, and nothing is dropped on the way. Reads the whole
    vocabulary.
    """
    if backend is None or takes_blanks(backend):
        return None
    factor = _shrinks(_state_of(backend.normalizer))
    is_byte_level = _splits_by_byte(_state_of(backend.pre_tokenizer))
    if factor is None or is_byte_level is None:
        return None
    if not _covers_all_bytes(backend.model, is_byte_level=is_byte_level):
        return None
    longest = _longest_of_model(backend, is_byte_level=is_byte_level)
    return longest and factor * max(longest, _longest_added(backend))


def _longest_of_model(backend: Any, *, is_byte_level: bool) -> int | None:
    """The most bytes of normalised text that the model joins to one token.

    They are those of its name, in which a blank may have three; where bytes are mapped to
    characters, each character is one. None if there are tokens without a name.
    """
    longest, name_of = 0, backend.model.id_to_token
    for token_id in range(backend.get_vocab_size(with_added_tokens=False)):
        name = name_of(token_id)
        if name is None:  # another token has a higher id
            return None
        longest = max(longest, len(name) if is_byte_level else len(name.encode()))
    return longest


def _longest_added(backend: Any) -> int:
    """The most bytes of an added token, which is looked for in the text, or after normalising."""
    normalizer, longest = backend.normalizer, 0
    for token in _added(backend):
        longest = max(longest, len(token.content.encode()))
        if normalizer is not None and token.normalized:
            longest = max(longest, len(normalizer.normalize_str(token.content).encode()))
    return longest


def _added(backend: Any) -> Iterable[Any]:
    """The tokens that are looked for before the model gets the text."""
    tokens: dict[int, Any] = backend.get_added_tokens_decoder()
    return tokens.values()


def _state_of(part: Any) -> dict[str, Any] | None:
    """Describe a part of a tokenizer. That of the whole would have the vocabulary in it."""
    return None if part is None else json.loads(part.__getstate__())


def _covers_all_bytes(model: Any, *, is_byte_level: bool) -> bool:
    """Whether the vocabulary has a token for each byte of UTF-8, so that none is unknown.

    Unknown characters may be dropped, and many may become one token.
    """
    if type(model).__name__ not in _MODELS:
        return False
    if any(getattr(model, mark, None) for mark in _WORD_MARKS):
        return False
    if is_byte_level:
        names = [name for name, byte in byte_alphabet().items() if byte in _UTF8]
    elif _has_byte_fallback(model):
        names = [f"<0x{byte:02X}>" for byte in _UTF8]
    else:
        return False
    return all(model.token_to_id(name) is not None for name in names)


def _has_byte_fallback(model: Any) -> bool:
    """Whether characters outside the vocabulary become tokens of their bytes."""
    if hasattr(model, "byte_fallback"):
        return bool(model.byte_fallback)
    return bool(json.loads(model.__getstate__()).get("byte_fallback"))


def _shrinks(normalizer: dict[str, Any] | None) -> int | None:
    """The factor by which a normaliser shortens a text at most; None if it is not known."""
    match normalizer:
        case None | {"type": "Prepend"}:
            return 1
        case {"type": "Replace", "pattern": {"String": str(before)}, "content": str(after)}:
            return 1 if len(after.encode()) >= len(before.encode()) else None
        case {"type": "Sequence", "normalizers": list(parts)}:
            product = 1
            for part in parts:
                factor = _shrinks(part)
                if factor is None:
                    return None
                product *= factor
            return product
        case {"type": str(name)}:
            return _NORMALIZERS.get(name)
    return None


def _splits_by_byte(splitter: dict[str, Any] | None) -> bool | None:
    """Whether a pre-tokenizer maps bytes to characters; None if it may drop text."""
    match splitter:
        case None:
            return False
        case {"type": "Sequence", "pretokenizers": list(parts)}:
            found = [_splits_by_byte(part) for part in parts]
            return None if None in found else True in found
        case {"type": "Split" | "Punctuation", "behavior": str(behavior)}:
            return None if behavior == "Removed" else False
        case {"type": str(name)} if name in _LOSSLESS_SPLITS:
            return name == "ByteLevel"
    return None
