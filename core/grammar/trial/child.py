"""The trial process: compiles the grammars that it reads, within limits that the system enforces.

It ends when its input ends, so it does not outlive the server. Its timers are set before each
trial, so the system ends it even if the server is gone or nothing returns to Python.
"""

from __future__ import annotations

import os
import random
import re
import sys
import time
from collections.abc import Callable
from typing import IO

import llguidance
import msgspec

from core.contract.errors import InvalidRequest
from core.contract.grammar import ChoiceGrammar
from core.grammar.matcher.matchers import MatcherFactory, on_deep_stack
from core.grammar.trial.limits import allocated_bytes, limited, prefer_to_die, resident_bytes
from core.grammar.trial.messages import Setup, Trial, TrialVerdict, read_message, write_message

MAX_GROWTH = 64 * 1024 * 1024
"""Bytes that may stay taken after trials before the process is replaced."""

NOISE = 256
"""Bytes by which the allocator's counts may differ per token, although nothing grows."""

NUM_TOKENS = 32
"""Tokens of a walk."""

MAX_SECONDS = 0.05
"""CPU time that a walk may take: slow masks must not make a trial fail."""

_SOME = re.compile(rb"[^\0]")


def main() -> None:
    """Read the setup, then answer each trial."""
    stdin = sys.stdin.buffer
    stdout = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not become a message
    prefer_to_die()
    on_deep_stack(lambda: _serve(stdin, stdout))


def _serve(stdin: IO[bytes], stdout: IO[bytes]) -> None:
    setup = read_message(stdin, Setup)
    if setup is None:
        return
    factory = MatcherFactory(setup.table)
    allocated = allocated_bytes()
    _try(factory, Trial(ChoiceGrammar(("yes", "no"))), allocated)  # fills what all grammars share
    start = resident_bytes()
    write_message(stdout, TrialVerdict())
    while (trial := read_message(stdin, Trial)) is not None:
        with limited(setup):
            verdict = _try(factory, trial, allocated)
        if resident_bytes() - start > MAX_GROWTH:
            write_message(stdout, msgspec.structs.replace(verdict, is_last=True))
            return
        write_message(stdout, verdict)


def _try(factory: MatcherFactory, trial: Trial, allocated: Callable[[], int]) -> TrialVerdict:
    before = allocated()
    try:
        written, matcher = factory.compile(trial.grammar)
    except InvalidRequest as error:
        return TrialVerdict(problem=error.message, code=error.code)
    except MemoryError:
        return TrialVerdict(is_memory=True)
    walk = Walk(matcher)
    walk.match()
    grown = allocated()
    num_matched = walk.match()
    per_token = (allocated() - grown) // max(1, num_matched)
    del matcher, walk
    return TrialVerdict(
        text=written.text,
        dropped=written.dropped,
        num_bytes=max(0, grown - before),
        bytes_per_token=per_token if per_token > NOISE else 0,
    )


class Walk:
    """Matches random tokens of a grammar. Each ``match`` continues where the last one ended."""

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
