"""Grammar compilers over made vocabularies: single bytes, and pieces of text. Imports no torch."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from core.contract.config import GrammarLimits
from core.grammar.compiler import GrammarCompiler
from core.text.vocabulary import Vocabulary

END_ID = 256


NUM_PIECES = 32_768

_ROOT = Path(__file__).parents[2]


def byte_compiler(**limits) -> GrammarCompiler:
    """A compiler that tries grammars in child processes."""
    return _compiler([], limits)


def piece_compiler(**limits) -> GrammarCompiler:
    """The same with ``NUM_PIECES`` tokens more, which begin words, as those of BPE do."""
    text = b"".join(path.read_bytes() for path in sorted(_ROOT.glob("docs/*.md")))
    text += b"".join(path.read_bytes() for path in sorted(_ROOT.glob("core/**/*.py")))
    words = Counter(re.findall(rb"[A-Za-z]+|\d{1,3}|[^\w\s]+|\s+", text))
    pieces: Counter[bytes] = Counter()
    for word, count in words.items():
        for piece in (word, b" " + word):
            pieces.update({piece[:end]: count for end in range(2, len(piece) + 1)})
    common = [piece for piece, _ in pieces.most_common(NUM_PIECES)]
    assert len(common) == NUM_PIECES
    return _compiler(common, limits)


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
