"""MatcherState: the grammar matcher of one sequence, and the cost of its masks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import llguidance

from core.contract.errors import RoseInferError, is_survivable
from core.contract.grammar import Grammar, has_json
from core.grammar.cache import CompiledGrammar
from core.grammar.compiler import GrammarCompiler
from core.grammar.matcher.digits import Words
from core.grammar.matcher.matchers import error_message

logger = logging.getLogger("roseinfer.core")

MAX_MASK_SECONDS = 0.1
"""CPU time of one mask. A mask that takes longer ends its sequence."""

PAID_SECONDS = 0.01
"""CPU time that every token of a sequence pays for. What its masks take beyond that is summed."""

MAX_DEBT_SECONDS = 0.5
"""CPU time beyond what was paid for that the masks of one sequence may take together."""


class NotCompiled(Exception):
    """The grammar is not compiled, or its shared lexer is used up: compile it again."""


class MatcherState:
    """The position of one sequence in its grammar. Used by one grammar thread at a time.

    Sequences with the same grammar share a lexer, which one of them may use up. A sequence that
    fails through its lexer therefore gets one of its own, and fails if that one fails too.
    """

    __slots__ = (
        "_compiler",
        "_consumed",
        "_debt",
        "_grammar",
        "_has_json",
        "_salt",
        "_shared",
        "failure",
        "is_over",
        "matcher",
        "seconds",
    )

    def __init__(self, compiler: GrammarCompiler, grammar: Grammar, *, salt: str = "") -> None:
        """Sequences with the same ``salt`` share the compiled grammar."""
        self._compiler = compiler
        self._grammar = grammar
        self._has_json = has_json(grammar)
        self._salt = salt
        self._consumed: list[int] = []
        self._debt = 0.0
        self._shared: CompiledGrammar | None = None
        """What the matcher was copied from; None before, and if it has a lexer of its own."""
        self.matcher: llguidance.LLMatcher | None = None
        self.is_over = False
        """Whether an end token was ignored, so that all further text is free."""
        self.failure: str | None = None
        """Why the matcher has failed, for the client."""
        self.seconds: float | None = None
        """CPU time of the last mask; None if it was not measured."""

    def begin(self, token_ids: list[int]) -> list[int]:
        """Take new tokens, and return those that the matcher has to consume.

        Raises NotCompiled; ``restart`` continues with the same tokens.
        """
        self._consumed += token_ids
        if self.is_over or self.failure is not None:
            return []
        if self.matcher is None:
            self._shared = self._compiler.kept(self._grammar, salt=self._salt)
            if self._shared is None:
                raise NotCompiled
            self.matcher = self._shared.new_matcher()
            token_ids = self._consumed
        return self._until_end(token_ids)

    def restart(self) -> list[int]:
        """Compile the grammar with a lexer of its own; returns all tokens, to consume again."""
        self._shared = None
        try:
            self.matcher = self._compiler.compile_again(self._grammar, salt=self._salt)
        except RoseInferError as error:  # it compiled before
            self.fail(str(error))
            return []
        return self._until_end(self._consumed)

    def _until_end(self, token_ids: list[int]) -> list[int]:
        self.is_over = any(token_id in self._compiler.end_ids for token_id in token_ids)
        if self._shared is not None:
            self._compiler.matched(self._shared, len(token_ids))
        return [] if self.is_over else token_ids

    def end_numbers(self, words: Words) -> None:
        """Take digits from a packed mask if a number has enough."""
        if self._has_json:
            self._compiler.factory.digits.apply(self._consumed, words)

    @property
    def live_matcher(self) -> llguidance.LLMatcher | None:
        """The matcher to fill a mask with; None if the sequence needs no mask, or has failed."""
        return None if self.is_over or self.failure is not None else self.matcher

    def count(self, seconds: float) -> None:
        """Count the CPU time of a mask; the sequence fails if its masks take too much."""
        self.seconds = seconds
        self._debt = max(0.0, self._debt + seconds - PAID_SECONDS)
        if self.failure is None and (seconds > MAX_MASK_SECONDS or self._debt > MAX_DEBT_SECONDS):
            self.fail(
                f"it is too ambiguous or too complex, so that a token takes {seconds * 1000:.0f} ms"
            )

    def give_up(self, reason: str) -> None:
        """The matcher has failed. Raises NotCompiled if it shares a lexer, which may be why."""
        if self._shared is not None:
            self._compiler.renew(self._grammar, salt=self._salt)
            raise NotCompiled
        self.fail(error_message(reason))

    def fail(self, reason: str) -> None:
        """Mark the sequence as failed; its masks allow no token."""
        logger.warning("a grammar matcher failed: %s", reason[:200])
        self.failure = f"The grammar of this request cannot continue: {reason[:200]}"

    @contextmanager
    def failing_alone(self) -> Iterator[None]:
        """Turn an exception or a panic within into the failure of this sequence.

        NotCompiled passes. So does a panic the first time: it breaks the lexer for every sequence
        that shares it, so it may have come from another one.
        """
        try:
            yield
        except NotCompiled:
            raise
        except BaseException as error:
            if not is_survivable(error):
                raise
            logger.exception("a grammar matcher raised")
            self._compiler.renew(self._grammar, salt=self._salt)
            if not isinstance(error, Exception) and self._shared is not None:
                raise NotCompiled from error
            self.fail(type(error).__name__)
