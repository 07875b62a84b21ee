"""The metadata of a tokenizer, as core.gguf.vocabulary.tokenizer reads it.

A file names a pre-tokenizer, and stores no normalizer or decoder. So what a reader makes of the
metadata is compared with the tokenizer over texts of many scripts before anything is written.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

from core.contract.errors import ModelLoadError
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


_SENTENCES = (
    "Hello world",
    "I'm sure you'LL see they've 'got what WE'D need; it's O'Neill's, isn't it?",
    " leading, double  and   trailing   ",
    "\ttabs\t\tand\n\nlines\r\n  indented\n \n\n\n",
    "def f(x_1: int) -> str:\n    return f'{x_1 ** 2:>10}'  # 1,234.50e-10\n",
    "1 12 123 1234 12345 0x1F 3.14159 \u0661\u0662\u0663 \u00bd",
    "na\u00efve caf\u00e9 \u00c0\u00c9\u00ce \ufb01n e\u0301 \u212b",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3002\u4e2d\u6587\u5b57\u7b26\uff0c\ud55c\uad6d\uc5b4",
    "\u0440\u0443\u0441\u0441\u043a\u0438\u0439 \u05e2\u05d1\u05e8\u05d9\u05ea",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22",
    "\u10e5\u10d0\u10e0\u10d7\u10e3\u10da\u10d8",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f389\U0001f3fd \u2764\ufe0f",
    'https://example.com/a?b=c&d=%20#e <b>bold</b> {"key": [1, null]} $x^2$ // /* */ \\n',
    "CamelCase snake_case SCREAMING iPhone McDonald's \u00dcBER \u01c5 a1b2c3",
    "... --- !!! ??? ,,, ((( ))) [[ ]] `` '' \"\" ~~ == != <= >= && || +++",
)

_RANGES = (
    range(0x20, 0x17F),
    range(0x370, 0x400),
    range(0x600, 0x660),
    range(0x2000, 0x2070),
    range(0x3040, 0x3100),
    range(0x4E00, 0x4E40),
    range(0xAC00, 0xAC40),
    range(0x1F600, 0x1F640),
)

PROBES = (
    *_SENTENCES,
    *("".join(map(chr, characters)) for characters in _RANGES),
    *(" ".join(map(chr, characters)) for characters in _RANGES),
    "".join(f"{a}{b}" for a, b in itertools.permutations("a Z9.\n'\t-\u00e9\u4e2d_", 2)),
)
"""Texts without special tokens and unassigned characters."""
