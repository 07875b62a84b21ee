"""Rules: the additions of transformers' tokenizer classes to a tokenizer.json.

The base class takes the file as it is. Others take its vocabulary, its merges and its
post-processor, and have rules of their own for the rest, whatever the file says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers
from tokenizers import pre_tokenizers as pre

from core.text.fast_tokenizer import Token

BASE = "TokenizersBackend"

_BASES = {BASE, "PreTrainedTokenizer"}
"""Names of the base class, without "Fast" at the end."""

_ANY = "apertus arcee deepseek_v3 dots1 exaone4 gemma4_text gpt_oss hunyuan_v1_dense"
_ANY += " hunyuan_v1_moe llama llama4_text nanochat seed_oss smollm3 cwm exaone mellum"
_FILES = "ernie4_5 ernie4_5_moe glm4 glm4_moe granite granitemoe mimo_v2_flash minimax_m2"
_FILES += " ministral3 mistral mixtral nemotron olmo2 olmo3 phi3 stablelm gpt_bigcode internlm3"
_FILES += " iquestcoder ministral"

REGISTERED: dict[str, str | None] = {
    **dict.fromkeys(_ANY.split()),
    **dict.fromkeys(_FILES.split(), BASE),
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text"), "GemmaTokenizer"),
    **dict.fromkeys(("gpt_neox", "olmoe"), "GPTNeoXTokenizer"),
    **dict.fromkeys(("gpt2", "phi", "starcoder2"), "GPT2Tokenizer"),
    **dict.fromkeys(("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"), "Qwen2Tokenizer"),
    "cohere2": "CohereTokenizer",
}
"""The class that transformers has for a ``model_type``; None: any class that the files name."""

FORCED = {"qwen2"}
"""Types whose files often name a wrong class, so that transformers takes its own."""

_LLAMA = "LlamaTokenizer"
_IS_NO_LLAMA = b'"ByteLevel"'
"""A tokenizer.json with it is not of Llama's class, whatever its files say."""


def class_of(model_type: str | None, named: str | None, tokenizer_json: Callable[[], bytes]) -> str:
    """The class that transformers chooses for files that name a type and a class.

    ``tokenizer_json`` reads that file. Raises LookupError for a type without a rule.
    """
    if model_type and model_type not in REGISTERED:
        raise LookupError(f"no rule says which tokenizer class models of type {model_type!r} have")
    own = REGISTERED.get(model_type or "")
    if named is None:
        return own or BASE
    named = named.removesuffix("Fast")
    if named == _LLAMA and _IS_NO_LLAMA in tokenizer_json():
        named = BASE
    if own is not None and (own == BASE or model_type in FORCED):
        return own
    return BASE if named in _BASES else named


@dataclass(frozen=True, slots=True)
class Rules:
    """``parts`` makes normalizer, pre-tokenizer and decoder of the fields of tokenizer_config.json.

    ``defaults`` are special tokens that the files need not name; ``options`` those of BPE, in which
    ``unk_token`` is true if it is the named one. ``again`` makes a token of each special one, which
    is added after all.
    """

    defaults: Mapping[str, str | None] = field(default_factory=dict)
    parts: Callable[[Mapping[str, Any]], tuple[Any, Any, Any]] | None = None  # None: the file's
    options: Mapping[str, Any] = field(default_factory=dict)
    keeps_processor: bool = True  # else nothing is put around a text
    again: Callable[[Token], AddedToken] | None = None

    def apply(
        self, backend: Tokenizer, fields: Mapping[str, Any], named: Mapping[str, Token]
    ) -> Tokenizer:
        """A tokenizer with the vocabulary of ``backend``, which it changes. Raises LookupError."""
        if self.parts is None:
            return backend
        model = backend.model
        if type(model).__name__ != "BPE":
            raise LookupError("its model is not BPE")
        options = {**_OPTIONS, **self.options}
        if options["unk_token"]:
            options["unk_token"] = str(named.get("unk_token"))
        for name, value in options.items():
            setattr(model, name, value)
        made = Tokenizer(model)
        made.normalizer, made.pre_tokenizer, made.decoder = self.parts(fields)
        made.post_processor = backend.post_processor if self.keeps_processor else None
        return made


def _byte_level(fields: Mapping[str, Any], **options: Any) -> Any:
    return pre.ByteLevel(add_prefix_space=fields.get("add_prefix_space", False), **options)


def _gpt2(fields: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return None, _byte_level(fields), decoders.ByteLevel()


def _gpt_neox(fields: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    split = _byte_level(fields, trim_offsets=fields.get("trim_offsets", True))
    return normalizers.NFC(), split, decoders.ByteLevel()


def _cohere(fields: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    split = pre.Sequence([pre.Digits(individual_digits=True), _byte_level(fields)])
    return normalizers.NFC(), split, decoders.ByteLevel()


def _qwen2(fields: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    has_prefix = bool(fields.get("add_prefix_space"))
    words = pre.Split(Regex(_QWEN2_WORDS), behavior="isolated")
    split = pre.Sequence([words, pre.ByteLevel(add_prefix_space=has_prefix, use_regex=False)])
    return normalizers.NFC(), split, decoders.ByteLevel()


def _gemma(_fields: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    split = pre.Split(pattern=" ", behavior="merged_with_previous")
    return normalizers.Replace(" ", _SPACE), split, decoders.Sequence(_PIECES)


def _llama(fields: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    prefix = fields.get("add_prefix_space")
    scheme = "never"
    if prefix is None or prefix:
        scheme = "always" if fields.get("legacy") else "first"
    split = pre.Metaspace(replacement=_SPACE, prepend_scheme=scheme, split=False)
    strip = [decoders.Strip(content=" ", left=1)] if scheme != "never" else []
    return None, split, decoders.Sequence([*_PIECES, *strip])


_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
"""The character that SentencePiece writes for a space."""

_PIECES = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]

_QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_OPTIONS = {
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}
_OF_BYTES = {"continuing_subword_prefix": "", "end_of_word_suffix": ""}
_OF_PIECES = {"fuse_unk": True, "byte_fallback": True}

_END = "<|endoftext|>"


def _special(token: Token) -> AddedToken:
    if isinstance(token, str):
        return AddedToken(token, special=True)
    token.special = True
    return token


RULES = {
    BASE: Rules(),
    "CohereTokenizer": Rules(
        {
            "unk_token": "<UNK>",
            "bos_token": "<BOS_TOKEN>",
            "eos_token": "<|END_OF_TURN_TOKEN|>",
            "pad_token": "<PAD>",
            "cls_token": "<CLS>",
            "sep_token": "<SEP>",
            "mask_token": "<MASK_TOKEN>",
        },
        _cohere,
        _OF_BYTES,
        again=_special,
    ),
    "GPT2Tokenizer": Rules(
        {"unk_token": _END, "bos_token": _END, "eos_token": _END, "pad_token": None},
        _gpt2,
        _OF_BYTES,
    ),
    "GPTNeoXTokenizer": Rules(
        {"unk_token": _END, "bos_token": _END, "eos_token": _END, "pad_token": "<|padding|>"},
        _gpt_neox,
        _OF_BYTES,
        keeps_processor=False,
    ),
    "GemmaTokenizer": Rules(
        {
            "unk_token": "<unk>",
            "bos_token": "<bos>",
            "eos_token": "<eos>",
            "pad_token": "<pad>",
            "mask_token": "<mask>",
        },
        _gemma,
        _OF_PIECES | {"unk_token": True},
    ),
    _LLAMA: Rules(
        {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}, _llama, _OF_PIECES
    ),
    "Qwen2Tokenizer": Rules(
        {"unk_token": _END, "bos_token": None, "eos_token": _END, "pad_token": _END},
        _qwen2,
        _OF_BYTES,
        again=lambda token: AddedToken(str(token), special=True),
    ),
}
"""By the name of the class. A test compares each with transformers' own."""
