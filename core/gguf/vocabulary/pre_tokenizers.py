"""The expressions that split text into pieces before byte-level BPE merges them, by name.

Files give a name only; llama.cpp's list says which models it stands for, and the expressions are
those of the models' own ``tokenizer.json``. Other names are refused: guessing would change tokens
silently.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LINES_AND_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+",
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*",
)
_CASED_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_ASCII_SYMBOL = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """Expressions that split a text one after the other; what lies between matches is a piece too.

    ``is_nfc`` says that text is normalised first. With ``ignores_merges`` a piece that is a token
    is not built from merges. ``adds_bos`` holds for files that do not say it.
    """

    splits: tuple[str, ...]
    is_nfc: bool = False
    ignores_merges: bool = False
    adds_bos: bool = False


def _split(*alternatives: str) -> PreTokenizer:
    return PreTokenizer(("|".join(alternatives),))


def _named(names: str, pre_tokenizer: PreTokenizer) -> Iterable[tuple[str, PreTokenizer]]:
    return ((name, pre_tokenizer) for name in names.split())


_LLAMA3 = _split(_CONTRACTIONS, _WORD, r"\p{N}{1,3}", _SYMBOLS, _LINES_AND_SPACES)
_QWEN2 = _split(_CONTRACTIONS, _WORD, r"\p{N}", _SYMBOLS, _LINES_AND_SPACES)
_GPT4O = _split(
    *(f"{part}{_CONTRACTIONS}?" for part in _CASED),
    r"\p{N}{1,3}",
    _CASED_SYMBOLS,
    _LINES_AND_SPACES,
)
_TEKKEN = _split(*_CASED, r"\p{N}", _CASED_SYMBOLS, _LINES_AND_SPACES)
_DEEPSEEK3 = PreTokenizer(
    (
        r"\p{N}{1,3}",
        r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        rf"{_ASCII_SYMBOL}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|" + _LINES_AND_SPACES,
    )
)
_FALCON = PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"))

PRE_TOKENIZERS: dict[str, PreTokenizer] = dict(
    [
        *_named(
            "gpt-2 phi-2 jina-es jina-de gigachat a.x-4.0 mellum mpt olmo jais trillion "
            "granite-docling exaone4",
            PreTokenizer((_GPT2,)),
        ),
        *_named(
            "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
            PreTokenizer((r"\p{N}", _GPT2)),
        ),
        *_named(
            "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2",
            replace(_LLAMA3, ignores_merges=True, adds_bos=True),
        ),
        *_named("dbrx smaug-bpe chatglm-bpe", _LLAMA3),
        *_named("glm4", replace(_LLAMA3, ignores_merges=True)),
        *_named("qwen2 deepseek-r1-qwen", replace(_QWEN2, is_nfc=True)),
        *_named("kormo megrez stablelm2 hunyuan solar-open grok-2", _QWEN2),
        *_named("gpt-4o llama4 kanana2", _GPT4O),
        *_named("tekken", replace(_TEKKEN, ignores_merges=True, adds_bos=True)),
        *_named("deepseek-v3 hunyuan-dense", _DEEPSEEK3),
        *_named("falcon", _FALCON),
    ]
)
"""Pre-tokenizers by their name in files."""
