"""The metadata of a tokenizer: what tokenizer.py reads, in reverse.

A file names a pre-tokenizer, and stores no normalizer or decoder. So what a reader makes of the
metadata is compared with the tokenizer over texts of many scripts before anything is written.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

from core.contract.errors import ModelLoadError
from core.export.probes import PROBES
from core.export.writer import Writable, header
from core.gguf.metadata import CONTROL, Metadata
from core.gguf.reader import read_header
from core.gguf.vocabulary.pre_tokenizers import PRE_TOKENIZERS
from core.gguf.vocabulary.tokenizer import splitter, tokenizer_of

logger = logging.getLogger("roseinfer.core")

_NORMAL, _UNKNOWN, _USER_DEFINED, _UNUSED, _BYTE = 1, 2, 4, 5, 6
"""Types of tokens beside CONTROL."""

_KEY = "tokenizer.ggml."

_NAMED = {
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
    "unk_token_id": "unknown_token_id",
    "pad_token_id": "padding_token_id",
}
_MORE_ENDS = ("eot_token_id", "eom_token_id")

Keys: TypeAlias = dict[str, Writable]


def describe_tokenizer(
    tokenizer: Any, architecture: str, num_rows: int, end_ids: Iterable[int]
) -> Keys:
    """Describe transformers' fast tokenizer for a model with ``num_rows`` embeddings.

    ``end_ids`` are the tokens that end the model's answers. Raises ModelLoadError if a file cannot
    hold the tokenizer, or if it would be read as another one.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelLoadError(
            f"{type(tokenizer).__name__} has no fast tokenizer, which a GGUF file is made of"
        )
    spec = json.loads(backend.to_str())
    if spec["model"]["type"] != "BPE":
        raise ModelLoadError(
            f"its tokenizer is of type {spec['model']['type']}; only BPE can be written"
        )
    is_sentencepiece = bool(spec["model"].get("byte_fallback"))
    keys = _tokens(spec, num_rows, tokenizer.unk_token if is_sentencepiece else None)
    keys |= (
        _sentencepiece(spec, backend, num_rows) if is_sentencepiece else _byte_level(spec, backend)
    )
    keys |= _named(tokenizer, set(end_ids))
    template = tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("default")
    if template:
        keys["tokenizer.chat_template"] = template
    _check(keys, architecture, backend, tokenizer.unk_token)
    return keys


def _tokens(spec: Any, num_rows: int, unknown: str | None) -> Keys:
    """All tokens with their types; rows of the embedding without one get a name."""
    tokens = [f"[PAD{i}]" for i in range(num_rows)]
    types = np.full(num_rows, _UNUSED, np.int32)
    added = {token["content"]: token for token in spec["added_tokens"]}
    ids = {**spec["model"]["vocab"], **{text: token["id"] for text, token in added.items()}}
    for text, i in ids.items():
        if i >= num_rows:
            raise ModelLoadError(f"its token {text!r} is {i}, beyond {num_rows} rows of embeddings")
        tokens[i], types[i] = text, _type(text, added.get(text), unknown)
    if len(set(tokens)) != num_rows:
        raise ModelLoadError("its vocabulary has a token that looks like padding")
    return {f"{_KEY}tokens": tokens, f"{_KEY}token_type": types}


def _type(text: str, added: Any, unknown: str | None) -> int:
    if text == unknown:
        return _UNKNOWN
    if added is not None:
        return CONTROL if added["special"] else _USER_DEFINED
    is_byte = len(text) == 6 and text.startswith("<0x") and text.endswith(">")
    return _BYTE if is_byte else _NORMAL


def _merges(spec: Any) -> list[tuple[str, str]]:
    """Pairs, the first merged first; older files of tokenizers join them by a space."""
    pairs = (m.split(" ", 1) if isinstance(m, str) else m for m in spec["model"]["merges"])
    return [(left, right) for left, right in pairs]


def _byte_level(spec: Any, backend: Any) -> Keys:
    merges = [f"{left} {right}" for left, right in _merges(spec)]
    return {f"{_KEY}model": "gpt2", f"{_KEY}pre": _pre(spec, backend), f"{_KEY}merges": merges}


def _pre(spec: Any, backend: Any) -> str:
    """The first pre-tokenizer with a name that splits as this one does."""
    is_nfc = "NFC" in json.dumps(spec["normalizer"] or "")
    ignores_merges = bool(spec["model"].get("ignore_merges"))
    own = backend.pre_tokenizer
    if own is not None:
        wanted = [own.pre_tokenize_str(text) for text in PROBES]
        for name, kind in PRE_TOKENIZERS.items():
            if (kind.is_nfc, kind.ignores_merges) != (is_nfc, ignores_merges):
                continue
            split = splitter(kind)
            if all(split.pre_tokenize_str(t) == w for t, w in zip(PROBES, wanted, strict=True)):
                return name
    raise ModelLoadError(
        "its tokenizer splits text as none of the pre-tokenizers does that GGUF files have names "
        "for"
    )


def _sentencepiece(spec: Any, backend: Any, num_rows: int) -> Keys:
    """Scores in the order of merges: SentencePiece joins what gives the token with the best.

    Tokens that no merge gives have the worst score.
    """
    merges = _merges(spec)
    scores = np.full(num_rows, -len(merges) - 1, np.float32)
    ids = spec["model"]["vocab"]
    for rank, (left, right) in reversed(list(enumerate(merges))):  # the first of a token counts
        scores[ids[left + right]] = -rank - 1
    tokens = backend.encode("a", add_special_tokens=False).tokens
    return {
        f"{_KEY}model": "llama",
        f"{_KEY}scores": scores,
        f"{_KEY}add_space_prefix": tokens[0].startswith("\N{LOWER ONE EIGHTH BLOCK}"),
    }


def _named(tokenizer: Any, end_ids: set[int]) -> Keys:
    """The tokens with a name, and whether BOS and EOS are put around a text."""
    keys: Keys = {
        _KEY + key: found
        for name, key in _NAMED.items()
        if isinstance(found := getattr(tokenizer, name), int)
    }
    more = sorted(end_ids - {tokenizer.eos_token_id})
    keys |= {_KEY + key: i for key, i in zip(_MORE_ENDS, more, strict=False)}
    ids = tokenizer.backend_tokenizer.encode("a").ids
    keys[f"{_KEY}add_bos_token"] = bool(ids) and ids[0] == tokenizer.bos_token_id
    keys[f"{_KEY}add_eos_token"] = bool(ids) and ids[-1] == tokenizer.eos_token_id
    return keys


def _check(keys: Keys, architecture: str, backend: Any, unknown: str | None) -> None:
    """Compare what a reader makes of the keys with the tokenizer."""
    data = np.frombuffer(header({"general.architecture": architecture, **keys}, ()), np.uint8)
    found, *_ = tokenizer_of(Metadata(read_header(data).metadata))
    for text in PROBES:
        wanted = backend.encode(text, add_special_tokens=True).ids
        ids = found.encode(text, add_special_tokens=True).ids
        if ids != wanted or found.decode(ids) != backend.decode(ids):
            raise ModelLoadError(
                f"its tokenizer cannot be written: a GGUF file's would read {text[:40]!r} otherwise"
            )
    for token in backend.get_added_tokens_decoder().values():
        text = f"a{token.content}b"
        if token.content != unknown and found.encode(text).ids != backend.encode(text).ids:
            logger.warning("around the token %r, text is split otherwise", token.content)
