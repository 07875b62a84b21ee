"""The most bytes of text in one token, for a lower bound on the tokens of a long text."""

from __future__ import annotations

import json
from typing import Any

from core.text.vocabulary import Vocabulary

_NORMALIZERS = dict.fromkeys(("NFC", "NFD", "NFKC", "NFKD"), 4)
"""Factors by which Unicode normalisation shortens UTF-8 at most: a mathematical letter of four
bytes becomes an ASCII letter."""

_LOSSLESS_SPLITS = {"ByteLevel", "Metaspace", "Digits", "Punctuation"}


def max_bytes_per_token(backend: Any, vocabulary: Vocabulary) -> int | None:
    """The most bytes of a text that become one token; None if there is no bound.

    ``backend`` is a ``tokenizers.Tokenizer``. A bound exists where every byte of the text is in
    some token: the vocabulary is exact and covers all bytes, and nothing is dropped on the way.
    Reads the whole vocabulary.
    """
    if backend is None or not vocabulary.is_exact:
        return None
    factor = _shrinks(_state_of(backend.normalizer))
    is_byte_level = _splits_by_byte(_state_of(backend.pre_tokenizer))
    if factor is None or is_byte_level is None:
        return None
    if not is_byte_level and not _has_byte_fallback(backend.model):
        return None  # unknown characters may be dropped or fused
    return factor * vocabulary.longest() or None


def _state_of(part: Any) -> dict[str, Any] | None:
    """Describe a part of a tokenizer. That of the whole would have the vocabulary in it."""
    return None if part is None else json.loads(part.__getstate__())


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
        case {"type": "Split", "behavior": str(behavior)}:
            return None if behavior == "Removed" else False
        case {"type": str(name)} if name in _LOSSLESS_SPLITS:
            return name == "ByteLevel"
    return None
