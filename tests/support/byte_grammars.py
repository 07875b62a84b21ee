"""Grammar compilers over made vocabularies: single bytes, and pieces of text. Imports no torch."""

from __future__ import annotations

import random

from core.contract.config import GrammarLimits
from core.grammar.compiler import GrammarCompiler
from core.text.vocabulary import Vocabulary

END_ID = 256


NUM_PIECES = 32_768

_SYLLABLES = [f"{first}{second}" for first in "bcdfghklmnprstvw" for second in "aeiou"]
_MARKS = "(){}[]<>=+-*/\"':;,._ \n"


def byte_compiler(**limits) -> GrammarCompiler:
    """A compiler that tries grammars in child processes."""
    return _compiler([], limits)


def piece_compiler(**limits) -> GrammarCompiler:
    """The same with ``NUM_PIECES`` tokens more, which begin words, as those of BPE do."""
    return _compiler(_pieces(), limits)


def _pieces() -> list[bytes]:
    """Beginnings of words, numbers and marks, with and without a blank. Always the same ones."""
    draw = random.Random(0)
    pieces: dict[bytes, None] = {}
    while len(pieces) < NUM_PIECES:
        word = _word(draw)
        for piece in (word, f" {word}"):
            pieces |= {piece[:end].encode(): None for end in range(2, len(piece) + 1)}
    return list(pieces)[:NUM_PIECES]


def _word(draw: random.Random) -> str:
    match draw.randrange(10):
        case 0:
            return str(draw.randrange(1000))
        case 1:
            return "".join(draw.choices(_MARKS, k=draw.randint(1, 4)))
        case kind:
            word = "".join(draw.choices(_SYLLABLES, k=draw.randint(1, 4)))
            return word.title() if kind == 2 else word


def _compiler(pieces: list[bytes], limits: dict[str, float]) -> GrammarCompiler:
    """Bytes, the end token, then ``pieces``."""
    tokens = [*(bytes([byte]) for byte in range(END_ID)), b"<end>", *pieces]
    vocabulary = Vocabulary(
        size=len(tokens),
        special_ids=frozenset({END_ID}),
        token_bytes=tokens.__getitem__,
        decode=lambda ids: b"".join(tokens[i] for i in ids).decode(errors="replace"),
        is_exact=True,
        strips_leading_space=False,
    )
    return GrammarCompiler(
        vocabulary, [END_ID], vocab_size=len(tokens), limits=GrammarLimits(**limits)
    )
