"""Walk: matches random tokens, so that the lexer that matchers share grows as in use."""

from __future__ import annotations

import random
import re
import time

import llguidance

NUM_TOKENS = 32
"""Tokens of a walk."""

MAX_SECONDS = 0.05
"""CPU time that a walk may take: slow masks must not make a trial fail."""

_SOME = re.compile(rb"[^\0]")


class Walk:
    """Goes on from where the last walk ended."""

    def __init__(self, start: llguidance.LLMatcher) -> None:
        self._start = start
        self._matcher = start.deep_copy()
        self._rng = random.Random(0)

    def match(self) -> int:
        """Match NUM_TOKENS tokens, from the start again where a text has ended; returns how many.

        They are fewer if their masks are slow.
        """
        end = time.thread_time() + MAX_SECONDS
        for num_matched in range(NUM_TOKENS):
            if time.thread_time() > end:
                return num_matched
            if not self._step():
                self._matcher = self._start.deep_copy()
        return NUM_TOKENS

    def _step(self) -> bool:
        """Match a token; False if the text has ended."""
        mask = self._matcher.compute_bitmask()
        place = self._rng.randrange(len(mask))
        found = _SOME.search(mask, place) or _SOME.search(mask)
        if found is None or self._matcher.is_error():
            return False
        byte = found[0][0]
        bits = [bit for bit in range(8) if byte >> bit & 1]
        return self._matcher.consume_token(8 * found.start() + self._rng.choice(bits))
