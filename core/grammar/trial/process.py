"""TrialProcess: one child process that compiles grammars on trial."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from core.contract.errors import RequestCancelled
from core.contract.grammar import Grammar
from core.grammar.trial.messages import Trial, TrialVerdict, decode_message, encode_message

POLL_SECONDS = 0.05
"""How often a waiting thread looks whether its request is cancelled."""

START_SECONDS = 60.0
"""Within this a child must be ready. It reads the vocabulary first."""

GRACE_SECONDS = 5.0
"""After its deadline a child has this long to be ended by its own timer."""

_PROGRAM = "import sys; sys.path[:] = {path}; from core.grammar.trial.child import main; main()"


class ChildFailed(Exception):
    """A child ended without a verdict, for no reason that the grammar explains.

    It could not be started, was killed, or got so little CPU time that its deadline passed.
    """


class TrialProcess:
    """A child process. Used by one thread at a time, not always the same.

    ``setup`` is an encoded Setup.
    """

    def __init__(self, setup: bytes, *, max_seconds: float) -> None:
        """Start the process without waiting for it. Raises OSError."""
        self._setup = setup
        self._max_seconds = max_seconds
        self._is_ready = False
        path = [entry or str(Path.cwd()) for entry in sys.path]
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-c", _PROGRAM.format(path=path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, grammar: Grammar, is_cancelled: Callable[[], bool]) -> TrialVerdict:
        """Try one grammar.

        Raises ChildFailed without a verdict, and RequestCancelled; the process has then ended.
        """
        try:
            if not self._is_ready:
                self._make_ready(is_cancelled)
            message = encode_message(Trial(grammar))
            verdict = self._ask(message, self._max_seconds + GRACE_SECONDS, is_cancelled)
        except BrokenPipeError:
            verdict = None
        except BaseException:
            self.close()
            raise
        if verdict is None:
            return self._verdict_of_end()
        if verdict.is_last:
            self.close()
        return verdict

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        """End the process and wait until it is gone."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait()

    def _make_ready(self, is_cancelled: Callable[[], bool]) -> None:
        try:
            verdict = self._ask(self._setup, START_SECONDS, is_cancelled)
        except BrokenPipeError as error:
            raise ChildFailed from error
        if verdict is None:
            raise ChildFailed
        self._is_ready = True

    def _ask(
        self, message: bytes, seconds: float, is_cancelled: Callable[[], bool]
    ) -> TrialVerdict | None:
        """Write a message and read the verdict.

        None if the process ends without one, or takes too long to read or to answer. Raises
        RequestCancelled, and BrokenPipeError if the process does not read the message.
        """
        deadline = time.monotonic() + seconds
        self._write(message, deadline, is_cancelled)
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        data = b""
        while _wait_for(fd, select.POLLIN, deadline, is_cancelled):
            read = os.read(fd, 1 << 20)
            if not read:
                return None
            data += read
            if (verdict := decode_message(data, TrialVerdict)) is not None:
                return verdict
        return None

    def _write(self, message: bytes, deadline: float, is_cancelled: Callable[[], bool]) -> None:
        """Write what the pipe takes, until the deadline."""
        assert self._process.stdin is not None
        fd = self._process.stdin.fileno()
        rest = memoryview(message)
        while rest and _wait_for(fd, select.POLLOUT, deadline, is_cancelled):
            rest = rest[os.write(fd, rest) :]

    def _verdict_of_end(self) -> TrialVerdict:
        """End the process; return the verdict that the signal which ended it stands for.

        Raises ChildFailed if it ended in another way, or had not ended yet.
        """
        self.close()
        code = self._process.returncode
        if code == -signal.SIGPROF:
            return TrialVerdict(is_time=True)
        if code == -signal.SIGABRT:  # Rust aborts when an allocation fails
            return TrialVerdict(is_memory=True)
        if code in (-signal.SIGSEGV, -signal.SIGBUS):  # the stack overflowed
            return TrialVerdict(problem="The grammar is nested too deeply.", code="invalid_grammar")
        raise ChildFailed(f"exit code {code}")


def _wait_for(fd: int, event: int, deadline: float, is_cancelled: Callable[[], bool]) -> bool:
    """Wait until a pipe can be read or written; False at the deadline. Raises RequestCancelled."""
    poll = select.poll()
    poll.register(fd, event)
    while not poll.poll(1000 * POLL_SECONDS):
        if is_cancelled():
            raise RequestCancelled
        if time.monotonic() > deadline:
            return False
    return True
