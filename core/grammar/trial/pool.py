"""TrialPool: the trial processes of a server."""

from __future__ import annotations

import logging
import sys
import threading
import weakref
from collections.abc import Callable

from core.contract.config import GrammarLimits
from core.contract.errors import InvalidRequest, RequestCancelled, Unavailable
from core.contract.grammar import Grammar
from core.grammar.matcher.matchers import TokenTable
from core.grammar.trial.messages import Setup, Verdict, encode_message
from core.grammar.trial.process import POLL_SECONDS, ChildFailed, TrialProcess

logger = logging.getLogger("roseinfer.core")

MAX_PROCESSES = 2

WALL_FACTOR = 5
"""A trial may last this many times its CPU time: it waits for the server's own work."""

MIN_SECONDS = 10.0
"""Wall time that a trial may last in any case."""

IS_SUPPORTED = sys.platform == "linux"
"""Elsewhere the system does not limit the memory of a process."""


class TrialPool:
    """At most ``MAX_PROCESSES`` child processes. Any thread may use it.

    A process is started when it is needed, kept, and replaced when a trial has ended it. All end
    with the pool, and with the server: they end when their input does.
    """

    def __init__(self, table: TokenTable, limits: GrammarLimits) -> None:
        self._limits = limits
        self._max_seconds = max(MIN_SECONDS, WALL_FACTOR * limits.timeout)
        setup = Setup(table, limits.timeout, self._max_seconds, limits.memory)
        self._setup = encode_message(setup)
        self._changed = threading.Condition()
        self._idle: list[TrialProcess] = []
        self._processes: list[TrialProcess] = []
        self._num_busy = 0
        self._finalizer = weakref.finalize(self, _close_all, self._processes)

    @property
    def pids(self) -> list[int]:
        """Process ids of the children."""
        return [process.pid for process in self._processes]

    def warm(self) -> None:
        """Start a first process without waiting for it. Raises OSError."""
        with self._changed:
            if not self._processes:
                self._idle.append(self._start())

    def run(self, grammar: Grammar, is_cancelled: Callable[[], bool]) -> Verdict:
        """Compile a grammar in a child; return its text and the memory that it holds.

        Raises InvalidRequest if the grammar is invalid or too expensive, RequestCancelled, and
        Unavailable if no process can be started.
        """
        process = self._acquire(is_cancelled)
        try:
            verdict = process.run(grammar, is_cancelled)
        except ChildFailed as error:
            logger.warning("a trial of a grammar ended without a verdict: %s", error)
            raise Unavailable("The grammar could not be checked; try again.") from error
        finally:
            self._release(process)
        if verdict.is_time:
            raise _too_complex(f"takes more than {self._limits.timeout:g} s to compile")
        if verdict.is_memory:
            mebibytes = self._limits.memory / 2**20
            raise _too_complex(f"needs more than {mebibytes:.0f} MiB of memory to compile")
        if verdict.problem is not None:
            raise InvalidRequest(verdict.problem, code=verdict.code)
        return verdict

    def close(self) -> None:
        """End all processes."""
        self._finalizer()

    def _acquire(self, is_cancelled: Callable[[], bool]) -> TrialProcess:
        with self._changed:
            while True:
                if is_cancelled():
                    raise RequestCancelled
                if self._num_busy < MAX_PROCESSES:
                    process = self._idle.pop() if self._idle else self._started()
                    self._num_busy += 1
                    return process
                self._changed.wait(POLL_SECONDS)

    def _started(self) -> TrialProcess:
        try:
            return self._start()
        except OSError as error:
            logger.exception("no process that tries grammars can be started")
            raise Unavailable("The grammar could not be checked; try again.") from error

    def _start(self) -> TrialProcess:
        process = TrialProcess(self._setup, max_seconds=self._max_seconds)
        self._processes.append(process)
        return process

    def _release(self, process: TrialProcess) -> None:
        with self._changed:
            self._num_busy -= 1
            if process.has_ended:
                process.close()
                self._processes.remove(process)
            else:
                self._idle.append(process)
            self._changed.notify()


def _too_complex(what: str) -> InvalidRequest:
    return InvalidRequest(f"The grammar {what}.", code="grammar_too_complex")


def _close_all(processes: list[TrialProcess]) -> None:
    while processes:
        processes.pop().close()
