"""Progress: the grammar matcher of one sequence."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import llguidance

from core.contract.errors import InvalidRequest, is_survivable
from core.contract.grammar import Grammar
from core.grammar.compiler import GrammarCompiler
from core.sequence import Sequence

logger = logging.getLogger("roseinfer.core")


class Progress:
    """The position of one sequence in its grammar.

    Made by the core thread, which also calls ``take_new``. All else belongs to the grammar thread.
    """

    __slots__ = ("_compiler", "_grammar", "_num_taken", "failure", "is_over", "matcher")

    def __init__(self, compiler: GrammarCompiler, sequence: Sequence) -> None:
        assert sequence.params.grammar is not None
        self._compiler = compiler
        self._grammar: Grammar = sequence.params.grammar
        self._num_taken = sequence.num_prompt_tokens
        self.matcher: llguidance.LLMatcher | None = None
        self.is_over = False
        """Whether an end token was ignored, so that all further text is free."""
        self.failure: str | None = None
        """Why the matcher has failed, for the client."""

    def take_new(self, sequence: Sequence) -> list[int]:
        """Return the tokens since the last call."""
        new = sequence.token_ids[self._num_taken :]
        self._num_taken = len(sequence.token_ids)
        return new

    def advance(self, token_ids: list[int]) -> llguidance.LLMatcher | None:
        """Consume the new tokens. Return the matcher to fill a mask with, None without one."""
        if self.is_over or self.failure is not None:
            return None
        if self.matcher is None:
            try:
                self.matcher = self._compiler.matcher(self._grammar)
            except InvalidRequest as error:  # it compiled before: a limit was reached
                self.fail(error.message)
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
        """Mark the sequence as failed; its masks allow no token."""
        logger.error("a grammar matcher failed: %s", reason[:200])
        self.failure = f"The grammar of this request cannot continue: {reason[:200]}"
        self._compiler.forget(self._grammar)

    @contextmanager
    def failing_alone(self) -> Iterator[None]:
        """Turn an exception or a panic within into the failure of this sequence."""
        try:
            yield
        except BaseException as error:
            if not is_survivable(error):
                raise
            logger.exception("a grammar matcher raised")
            self.fail(type(error).__name__)
