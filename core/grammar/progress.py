"""Progress: how far one sequence has come in its grammar."""

from __future__ import annotations

import logging

import llguidance

from core.contract.errors import InvalidRequest
from core.contract.grammar import Grammar
from core.grammar.compiler import GrammarCompiler
from core.sequence import Sequence

logger = logging.getLogger("roseinfer.core")


class Progress:
    """A matcher and what became of it. Made on the core thread, then the filling thread's own.

    Only ``take_new`` is the core thread's.
    """

    __slots__ = ("_compiler", "_grammar", "_num_taken", "is_broken", "is_over", "matcher")

    def __init__(self, compiler: GrammarCompiler, sequence: Sequence) -> None:
        assert sequence.params.grammar is not None
        self._compiler = compiler
        self._grammar: Grammar = sequence.params.grammar
        self._num_taken = sequence.num_prompt_tokens
        self.matcher: llguidance.LLMatcher | None = None
        self.is_over = False
        """Whether an end token was ignored: whatever follows is free."""
        self.is_broken = False
        """Whether the grammar cannot be followed any more."""

    def take_new(self, sequence: Sequence) -> list[int]:
        """The tokens since the last call."""
        new = sequence.token_ids[self._num_taken :]
        self._num_taken = len(sequence.token_ids)
        return new

    def advance(self, token_ids: list[int]) -> llguidance.LLMatcher | None:
        """Follow the new tokens; gives the matcher to ask for a mask, None if there is none."""
        try:
            if self.matcher is None:
                self.matcher = self._compiler.matcher(self._grammar)
        except InvalidRequest as error:  # it was checked: only its weight in memory can matter
            self.fail(error.message)
        if self.matcher is None or self.is_over or self.is_broken:
            return None
        for token_id in token_ids:
            if token_id in self._compiler.end_ids:
                self.is_over = True
                return None
            if not self.matcher.consume_token(token_id):
                self.fail(self.matcher.get_error())
                return None
        return self.matcher

    def fail(self, reason: str) -> None:
        """Give this sequence up."""
        logger.error("a grammar cannot be followed any more: %s", reason[:200])
        self.is_broken = True
        self._compiler.forget(self._grammar)
