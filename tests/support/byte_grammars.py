"""A grammar compiler over a vocabulary of single bytes. Imports no torch."""

from __future__ import annotations

from core.contract.config import GrammarLimits
from core.grammar.compiler import GrammarCompiler
from core.text.vocabulary import Vocabulary

END_ID = 256


def byte_compiler(**limits) -> GrammarCompiler:
    """A compiler that tries grammars in child processes."""
    vocabulary = Vocabulary(
        size=END_ID + 1,
        special_ids=frozenset({END_ID}),
        token_bytes=lambda token_id: b"<end>" if token_id == END_ID else bytes([token_id]),
        decode=lambda ids: bytes(ids).decode(errors="replace"),
        is_exact=True,
        strips_leading_space=False,
    )
    return GrammarCompiler(
        vocabulary, [END_ID], vocab_size=END_ID + 1, limits=GrammarLimits(**limits)
    )
