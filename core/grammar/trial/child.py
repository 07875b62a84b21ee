"""The trial process: compiles the grammars that it reads, within limits that the system enforces.

It ends when its input ends, so it does not outlive the server. Its timers are set before each
trial, so the system ends it even if the server is gone or nothing returns to Python.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import IO

import msgspec

from core.contract.errors import InvalidRequest
from core.contract.grammar import Choice
from core.grammar.matcher.deep_stack import on_deep_stack
from core.grammar.matcher.matchers import MatcherFactory
from core.grammar.trial.limits import limited, prefer_to_die
from core.grammar.trial.memory import allocated_bytes, resident_bytes
from core.grammar.trial.messages import Setup, Trial, Verdict, read_message, write_message
from core.grammar.trial.walk import Walk

MAX_GROWTH = 64 * 1024 * 1024
"""Bytes that may stay taken after trials before the process is replaced."""

NOISE = 256
"""Bytes by which the allocator's counts may differ per token, although nothing grows."""


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
    _try(factory, Trial(Choice(("yes", "no"))), allocated)  # fills what all grammars share
    start = resident_bytes()
    write_message(stdout, Verdict())
    while (trial := read_message(stdin, Trial)) is not None:
        with limited(setup):
            verdict = _try(factory, trial, allocated)
        if resident_bytes() - start > MAX_GROWTH:
            write_message(stdout, msgspec.structs.replace(verdict, is_last=True))
            return
        write_message(stdout, verdict)


def _try(factory: MatcherFactory, trial: Trial, allocated: Callable[[], int]) -> Verdict:
    before = allocated()
    try:
        written, matcher = factory.compile(trial.grammar)
    except InvalidRequest as error:
        return Verdict(problem=error.message, code=error.code)
    except MemoryError:
        return Verdict(is_memory=True)
    walk = Walk(matcher)
    walk.match()
    grown = allocated()
    num_matched = walk.match()
    per_token = (allocated() - grown) // max(1, num_matched)
    del matcher, walk
    return Verdict(
        text=written.text,
        dropped=written.dropped,
        num_bytes=max(0, grown - before),
        bytes_per_token=per_token if per_token > NOISE else 0,
    )


if __name__ == "__main__":
    main()
