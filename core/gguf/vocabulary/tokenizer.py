"""The tokenizer and the chat template of a GGUF file.

They are built with the ``tokenizers`` library: byte-level BPE ("gpt2" in files), SentencePiece's
BPE ("llama") and unigram ("t5").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as pre
from tokenizers.processors import TemplateProcessing

from core.contract.errors import ModelLoadError, is_survivable
from core.gguf.metadata import CONTROL, Metadata
from core.gguf.vocabulary.merges import Merges, merges_of
from core.gguf.vocabulary.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer

_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
"""SentencePiece's character for a space."""

_USER_DEFINED = 4
"""The type of tokens that are found in any text and are not special."""

_KEY = "tokenizer.ggml."

_PROBE = "".join(map(chr, (*range(1, 0x250), 0x3042, 0x4E00, 0xAC00, 0xFB01, 0xFF21, 0x1F600)))
"""Characters that normalizers change, for their first use."""

_NAMED = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}

_SENTENCEPIECE_IDS = {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}
"""Ids of older files that do not name them."""


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    tokens: list[str]
    types: list[int]
    ids: dict[str, int]

    @classmethod
    def of(cls, metadata: Metadata) -> _Vocabulary:
        tokens = list(metadata.strings(f"{_KEY}tokens"))
        ids = {token: i for i, token in enumerate(tokens)}
        if len(ids) != len(tokens):
            twice = next(token for i, token in enumerate(tokens) if ids[token] != i)
            raise ModelLoadError(f"its vocabulary has the token {twice!r} twice")
        key = f"{_KEY}token_type"
        types = metadata.numbers(key).tolist() if key in metadata else [1] * len(tokens)
        if len(types) != len(tokens):
            raise ModelLoadError(f"{key} has {len(types)} types for {len(tokens)} tokens")
        return cls(tokens, types, ids)


def _named(metadata: Metadata, default_ids: dict[str, int]) -> dict[str, str | None]:
    """The tokens with a name, such as BOS."""
    tokens = metadata.strings(f"{_KEY}tokens")
    found: dict[str, str | None] = {}
    for name, key in _NAMED.items():
        if _KEY + key in metadata:
            index: int | None = metadata.integer(_KEY + key, most=len(tokens) - 1)
        else:
            index = default_ids.get(key)
        if index is not None and index >= len(tokens):  # of an older file
            raise ModelLoadError(f"its vocabulary of {len(tokens)} has no {name} {index}")
        found[name] = None if index is None else tokens[index]
    return found


def tokenizer_of(metadata: Metadata) -> tuple[Tokenizer, dict[str, str], str | None]:
    """Build the tokenizer of a file; its tokens by name, as "eos_token"; the chat template.

    Raises ModelLoadError.
    """
    model = metadata.text(f"{_KEY}model")
    if model not in _MODELS:
        raise ModelLoadError(f"its tokenizer {model!r} is not supported; {', '.join(_MODELS)} are")
    build, default_ids = _MODELS[model]
    named = _named(metadata, default_ids)
    try:
        backend = _backend(metadata, build, named)
    except ModelLoadError:
        raise
    except BaseException as error:  # the library raises bare exceptions, and panics
        if not is_survivable(error):
            raise
        raise ModelLoadError(f"its tokenizer cannot be built: {error}") from error
    template = "tokenizer.chat_template"
    return (
        backend,
        {name: token for name, token in named.items() if token is not None},
        metadata.text(template) if template in metadata else None,
    )


def _backend(metadata: Metadata, build: Any, named: dict[str, str | None]) -> Tokenizer:
    """Build the library's tokenizer.

    Python's strings of a vocabulary take tens of megabytes, which are returned to the system only
    if nothing that stays is made beside them. So they are not used elsewhere.
    """
    vocabulary = _Vocabulary.of(metadata)
    backend: Tokenizer
    backend, adds_bos = build(metadata, vocabulary, named["unk_token"])
    _add_tokens(backend, vocabulary)
    _add_bos_and_eos(backend, vocabulary, metadata, named, adds_bos=adds_bos)
    if backend.normalizer is not None:
        backend.normalizer.normalize_str(_PROBE)  # a damaged table panics at its first use
    return backend


def _byte_level(
    metadata: Metadata, vocabulary: _Vocabulary, _unknown: str | None
) -> tuple[Tokenizer, bool]:
    kind = _pre_tokenizer(metadata)
    merges = Merges.written(metadata.strings(f"{_KEY}merges"))
    try:
        model = models.BPE(vocab=vocabulary.ids, merges=merges, ignore_merges=kind.ignores_merges)
    except TypeError:
        for _ in merges:  # raises what the library has made a TypeError of three lines
            pass
        raise
    backend = Tokenizer(model)
    if kind.is_nfc:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = splitter(kind)
    backend.decoder = decoders.ByteLevel()
    return backend, kind.adds_bos


def splitter(kind: PreTokenizer) -> pre.Sequence:
    """Return what splits text and turns its bytes into characters."""
    return pre.Sequence(
        [
            *(pre.Split(Regex(split), behavior="isolated") for split in kind.splits),
            pre.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _pre_tokenizer(metadata: Metadata) -> PreTokenizer:
    name = metadata.text(f"{_KEY}pre")
    if name not in PRE_TOKENIZERS:
        raise ModelLoadError(f"its pre-tokenizer {name!r} is not known")
    return PRE_TOKENIZERS[name]


def _sentencepiece(
    metadata: Metadata, vocabulary: _Vocabulary, unknown: str | None
) -> tuple[Tokenizer, bool]:
    is_gemma = metadata.text("general.architecture").startswith("gemma")
    tokens, ids = vocabulary.tokens, vocabulary.ids
    if is_gemma:
        # runs of spaces are written as such, and scores do not follow the order of merges
        tokens = [_SPACE * len(t) if " " in t and not t.strip() else t for t in tokens]
        ids = dict(zip(tokens, vocabulary.ids.values(), strict=True))  # which makes no numbers
        ranks = np.arange(len(tokens))
    else:
        ranks = -metadata.numbers(f"{_KEY}scores")
        if len(ranks) != len(tokens):
            raise ModelLoadError(f"{_KEY}scores has {len(ranks)} scores for {len(tokens)} tokens")
    backend = Tokenizer(
        models.BPE(
            vocab=ids,
            merges=merges_of(tokens, ids, ranks, _units(ids, unknown)),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    has_prefix = metadata.flag(f"{_KEY}add_space_prefix", default=True)
    backend.normalizer = normalizers.Sequence(
        [*[normalizers.Prepend(_SPACE)] * has_prefix, normalizers.Replace(" ", _SPACE)]
    )
    if is_gemma:
        backend.pre_tokenizer = pre.Split(" ", behavior="merged_with_previous")
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace(_SPACE, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            *[decoders.Strip(content=" ", left=1)] * has_prefix,
        ]
    )
    return backend, True


def _units(ids: dict[str, int], unknown: str | None) -> list[int]:
    """The tokens that stand for characters outside the vocabulary."""
    names = [*(f"<0x{byte:02X}>" for byte in range(256)), unknown or ""]
    return [ids[name] for name in names if name in ids]


def _unigram(
    metadata: Metadata, vocabulary: _Vocabulary, unknown: str | None
) -> tuple[Tokenizer, bool]:
    scores = metadata.numbers(f"{_KEY}scores").tolist()
    if len(scores) != len(vocabulary.tokens) or not all(map(math.isfinite, scores)):
        raise ModelLoadError(f"{_KEY}scores has no finite score for every token")
    unk_id = None if unknown is None else vocabulary.ids[unknown]
    pairs = list(zip(vocabulary.tokens, scores, strict=True))
    backend = Tokenizer(models.Unigram(pairs, unk_id=unk_id, byte_fallback=False))
    steps: list[Any] = []
    if f"{_KEY}precompiled_charsmap" in metadata:
        steps.append(normalizers.Precompiled(_bytes(metadata, f"{_KEY}precompiled_charsmap")))
    if metadata.flag(f"{_KEY}remove_extra_whitespaces", default=True):
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    backend.normalizer = normalizers.Sequence(steps)
    has_prefix = metadata.flag(f"{_KEY}add_space_prefix", default=True)
    scheme = "always" if has_prefix else "never"
    backend.pre_tokenizer = pre.Metaspace(_SPACE, prepend_scheme=scheme)
    backend.decoder = decoders.Metaspace(_SPACE, prepend_scheme=scheme)
    return backend, False


def _bytes(metadata: Metadata, key: str) -> bytes:
    numbers = metadata.numbers(key)
    if numbers.dtype.itemsize != 1:
        raise ModelLoadError(f"{key} is not an array of bytes")
    return numbers.tobytes()


def _add_tokens(backend: Tokenizer, vocabulary: _Vocabulary) -> None:
    """Make control tokens special, and let user-defined ones be found in any text."""
    added = [
        AddedToken(token, special=kind == CONTROL, normalized=False)
        for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
        if kind in (CONTROL, _USER_DEFINED) and token
    ]
    known = [token for token in added if backend.token_to_id(token.content) is not None]
    backend.add_tokens(known)


def _add_bos_and_eos(
    backend: Tokenizer,
    vocabulary: _Vocabulary,
    metadata: Metadata,
    named: dict[str, str | None],
    *,
    adds_bos: bool,
) -> None:
    bos = named["bos_token"] if metadata.flag(f"{_KEY}add_bos_token", adds_bos) else None
    eos = named["eos_token"] if metadata.flag(f"{_KEY}add_eos_token", default=False) else None
    around = [token for token in (bos, eos) if token is not None]
    single = [*[bos] * (bos is not None), "$A", *[eos] * (eos is not None)]
    backend.post_processor = TemplateProcessing(
        single=single, pair=None, special_tokens=[(t, vocabulary.ids[t]) for t in around]
    )


_MODELS = {
    "gpt2": (_byte_level, {}),
    "llama": (_sentencepiece, _SENTENCEPIECE_IDS),
    "t5": (_unigram, {"eos_token_id": 1, "unknown_token_id": 2, "padding_token_id": 0}),
}
"""Builders by the name in files, and ids of tokens that older files do not name."""
