"""GrammarCache: compiled grammars by what they weigh, and grammars that were refused."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import OrderedDict

import llguidance

from core.contract.errors import InvalidRequest
from core.contract.grammar import DroppedKeyword

MAX_COMPILED = 256
"""Compiled grammars that are kept, at most."""

MAX_REFUSED = 1024
"""Refused grammars that are remembered, so that they are not tried again."""


@dataclasses.dataclass(slots=True)
class CompiledGrammar:
    """A matcher at the start of its grammar, its text, what that lacks, and its weight.

    The lexer that its copies share grows as they match: ``growth`` is the weight of
    ``bytes_per_token`` for each token that was matched. ``num_uses`` counts the copies.
    """

    key: bytes
    text: str
    matcher: llguidance.LLMatcher
    first_bytes: int
    bytes_per_token: int = 0
    dropped: tuple[DroppedKeyword, ...] = ()
    growth: int = 0
    num_uses: int = 0
    is_being_renewed: bool = False

    @property
    def num_bytes(self) -> int:
        return self.first_bytes + self.growth

    def new_matcher(self) -> llguidance.LLMatcher:
        return self.matcher.deep_copy()

    def renewed(self, matcher: llguidance.LLMatcher) -> CompiledGrammar:
        """The same with a new lexer."""
        return CompiledGrammar(
            self.key, self.text, matcher, self.first_bytes, self.bytes_per_token, self.dropped
        )


class GrammarCache:
    """The most recently used compiled grammars, and refusals. The owner locks it."""

    def __init__(self, max_bytes: int) -> None:
        self.num_bytes = 0
        self._max_bytes = max_bytes
        self._compiled: OrderedDict[bytes, CompiledGrammar] = OrderedDict()
        self._refused: OrderedDict[bytes, InvalidRequest] = OrderedDict()

    def __len__(self) -> int:
        """Compiled grammars."""
        return len(self._compiled)

    @property
    def num_refused(self) -> int:
        return len(self._refused)

    def get(self, key: bytes) -> CompiledGrammar | None:
        """Return a compiled grammar, which is then the most recently used."""
        compiled = self._compiled.get(key)
        if compiled is not None:
            self._compiled.move_to_end(key)
        return compiled

    def keep(self, compiled: CompiledGrammar) -> None:
        """Add or replace a grammar, and drop the least recently used ones."""
        self.drop(compiled.key)
        self._compiled[compiled.key] = compiled
        self.num_bytes += compiled.num_bytes
        self._shrink()

    def grow(self, compiled: CompiledGrammar, num_tokens: int) -> bool:
        """So many tokens were matched. Drops the least recently used grammars.

        Returns whether the cache keeps this one.
        """
        growth = num_tokens * compiled.bytes_per_token
        compiled.growth += growth
        if self._compiled.get(compiled.key) is not compiled:
            return False
        self._compiled.move_to_end(compiled.key)  # dropping it would free nothing: it is in use
        self.num_bytes += growth
        self._shrink()
        return self._compiled.get(compiled.key) is compiled

    def _shrink(self) -> None:
        while len(self._compiled) > MAX_COMPILED or self.num_bytes > self._max_bytes:
            self.drop(next(iter(self._compiled)))

    def drop(self, key: bytes) -> None:
        """Remove a grammar, if it is kept."""
        compiled = self._compiled.pop(key, None)
        if compiled is not None:
            self.num_bytes -= compiled.num_bytes

    def refusal(self, key: bytes) -> InvalidRequest | None:
        """Return the error with which the grammar was refused."""
        return self._refused.get(hashlib.sha256(key).digest())

    def refuse(self, key: bytes, error: InvalidRequest) -> None:
        """Remember that a grammar is invalid, or too expensive."""
        self._refused[hashlib.sha256(key).digest()] = error
        if len(self._refused) > MAX_REFUSED:
            self._refused.popitem(last=False)
