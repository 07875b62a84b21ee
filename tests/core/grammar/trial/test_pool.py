"""Grammars on trial in child processes: their limits, and what remains of them."""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from core.contract.errors import InvalidRequest, RequestCancelled, Unavailable
from core.contract.grammar import choice, json_schema, lark
from core.grammar import compiler as compiler_module
from core.grammar.matcher.matchers import TokenTable
from core.grammar.trial import child as child_module
from core.grammar.trial import pool as pool_module
from core.grammar.trial import process as process_module
from core.grammar.trial.messages import Setup, Trial, Verdict, encode_message, read_message
from core.grammar.trial.process import ChildFailed, TrialProcess
from tests.support.byte_grammars import byte_compiler

SLOW = json_schema({"allOf": [{"type": "integer", "multipleOf": step} for step in (997, 991)]})
"""Takes 5 s and more to compile: an automaton of 988,027 states."""

SLOWER = json_schema({"allOf": [{"type": "integer", "multipleOf": n} for n in (1999, 1997)]})
"""Four times as many: it does not compile at all in the memory of a trial."""

LARGE = json_schema({"type": "integer", "multipleOf": 99_991})
"""Takes 0.5 s and 50 MB."""

EASY = choice(["yes", "no"])


@pytest.fixture(scope="module")
def compiler():
    """A compiler whose trials may take 0.2 s."""
    compiler = byte_compiler(timeout=0.2)
    compiler.check(EASY)
    yield compiler
    compiler.close()


def is_gone(pid: int) -> bool:
    """Wait until a process has ended; whether it does so in time."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    try:
        return bool(poll.poll(30_000))
    finally:
        os.close(descriptor)


def test_a_grammar_that_takes_too_long_is_refused_and_its_process_ended(compiler):
    compiler.check(choice(["a"]))
    (pid,) = compiler._pool.pids
    with pytest.raises(InvalidRequest) as refused:
        compiler.check(SLOW, param="response_format")
    assert refused.value.message == "The grammar takes more than 0.2 s to compile."
    assert refused.value.code == "grammar_too_complex"
    assert refused.value.param == "response_format"
    assert is_gone(pid)
    compiler.check(choice(["b"]))  # in a new process
    pids = compiler._pool.pids
    assert pid not in pids
    with pytest.raises(InvalidRequest):
        compiler.check(SLOW)
    assert compiler._pool.pids == pids  # the refusal was remembered


def test_a_grammar_that_takes_too_much_memory_is_refused():
    compiler = byte_compiler(timeout=20.0, memory=16 * 2**20)
    with pytest.raises(InvalidRequest, match="needs more than 16 MiB of memory to compile"):
        compiler.check(LARGE)
    compiler.check(EASY)
    compiler.close()


def test_what_a_grammar_holds_is_measured_and_bounds_the_cache():
    compiler = byte_compiler(timeout=20.0, cache_memory=6 * 2**20)
    compiler.check(EASY)
    assert compiler._cache.num_bytes < 2**20
    for step in (9_973, 9_967):
        compiler.check(json_schema({"type": "integer", "multipleOf": step}))
        assert 2 * 2**20 < compiler._cache.num_bytes < 6 * 2**20
        assert len(compiler._cache) <= 2
    assert compiler.kept(EASY) is None  # the oldest
    compiler.close()


def test_a_request_that_is_cancelled_ends_its_trial():
    compiler = byte_compiler(timeout=20.0)
    compiler.check(EASY)
    (pid,) = compiler._pool.pids
    with pytest.raises(RequestCancelled):
        compiler.check(SLOWER, is_cancelled=iter([False, True]).__next__)  # the first to begin
    assert is_gone(pid)
    assert not compiler._being_compiled
    assert not compiler._cache.num_refused  # another may still wait for it
    compiler.check(choice(["a"]))
    compiler.close()


def test_a_request_that_waits_for_a_process_can_be_cancelled(compiler, monkeypatch):
    monkeypatch.setattr(pool_module, "MAX_PROCESSES", 0)
    with pytest.raises(RequestCancelled):
        compiler.check(choice(["c"]), is_cancelled=iter([False, False, True]).__next__)


def test_a_request_that_leaves_during_its_trial_is_not_compiled_in_the_server(
    compiler, monkeypatch
):
    monkeypatch.setattr(compiler._pool, "run", lambda *_: Verdict(text="never compiled"))
    with pytest.raises(RequestCancelled):
        compiler.check(choice(["h"]), is_cancelled=lambda: True)
    assert compiler.dropped(choice(["h"])) is None


@pytest.fixture
def stopped():
    """A process that reads nothing of a setup that no pipe can hold."""
    process = TrialProcess(bytes(1 << 20), max_seconds=1.0)
    os.kill(process.pid, signal.SIGSTOP)
    yield process
    process.close()


def test_a_request_can_leave_while_the_vocabulary_is_written(stopped):
    with pytest.raises(RequestCancelled):
        stopped.run(EASY, iter([False, True]).__next__)
    assert stopped.has_ended


def test_the_vocabulary_is_not_written_for_ever(stopped, monkeypatch):
    monkeypatch.setattr(process_module, "START_SECONDS", 0.0)
    with pytest.raises(ChildFailed):
        stopped.run(EASY, lambda: False)
    assert stopped.has_ended


def test_a_process_is_started_before_the_first_trial():
    compiler = byte_compiler()
    compiler.failed_matcher()  # reads the vocabulary
    assert len(compiler._pool.pids) == 1
    compiler.close()


def test_equal_grammars_are_tried_once(compiler, monkeypatch):
    trials = []
    whole = compiler._pool.run
    monkeypatch.setattr(compiler._pool, "run", lambda *args: trials.append(1) or whole(*args))
    grammar = lark('start: "a" start "b" | "ab"')
    threads = [threading.Thread(target=compiler.check, args=(grammar,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert trials == [1]


def test_a_trial_without_cpu_time_is_retryable(monkeypatch):
    monkeypatch.setattr(pool_module, "WALL_FACTOR", 0.0005)
    monkeypatch.setattr(pool_module, "MIN_SECONDS", 0.0)
    compiler = byte_compiler(timeout=20.0)
    with pytest.raises(Unavailable):
        compiler.check(SLOW)
    assert not compiler._cache.num_refused
    compiler.close()


def test_a_killed_process_is_replaced(compiler):
    compiler.check(choice(["d"]))
    for pid in compiler._pool.pids:
        os.kill(pid, signal.SIGKILL)
        assert is_gone(pid)
    with pytest.raises(Unavailable):
        compiler.check(choice(["e"]))
    compiler.check(choice(["e"]))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGPROF, "takes more than 0.2 s"),
        (signal.SIGABRT, "needs more than 512 MiB"),
        (signal.SIGSEGV, "nested too deeply"),
    ],
)
def test_the_signal_that_ends_a_process_says_why(compiler, number, words):
    compiler.check(choice([f"before signal {number}"]))
    for pid in compiler._pool.pids:
        os.kill(pid, number)
        assert is_gone(pid)
    with pytest.raises(InvalidRequest, match=words):
        compiler.check(choice([f"ended by signal {number}"]))


def test_a_process_that_keeps_much_memory_is_replaced(compiler, monkeypatch):
    monkeypatch.setattr(child_module, "MAX_GROWTH", -1)
    monkeypatch.setattr(child_module, "limited", contextlib.nullcontext)  # this process has none
    table = TokenTable.of(compiler._vocabulary, compiler.end_ids, compiler.vocab_size)
    messages = Setup(table, 1.0, 1.0, 0), Trial(EASY), Trial(choice(["a second one"]))
    answers = io.BytesIO()
    child_module._serve(io.BytesIO(b"".join(map(encode_message, messages))), answers)
    answers.seek(0)
    assert read_message(answers, Verdict) == Verdict()  # ready
    assert read_message(answers, Verdict).is_last
    assert read_message(answers, Verdict) is None


def test_a_process_gives_way_to_the_server(compiler):
    compiler.check(choice(["g"]))
    pid, *_ = compiler._pool.pids
    assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)
    assert Path(f"/proc/{pid}/oom_score_adj").read_text() == "1000\n"


def test_processes_end_with_the_compiler():
    compiler = byte_compiler()
    compiler.check(EASY)
    (pid,) = compiler._pool.pids
    del compiler
    assert is_gone(pid)


def test_processes_end_when_the_server_is_killed():
    program = (
        "import os, signal\n"
        "from core.contract.grammar import choice\n"
        "from tests.support.byte_grammars import byte_compiler\n"
        "compiler = byte_compiler()\n"
        "compiler.check(choice(['yes']))\n"
        "print(*compiler._pool.pids, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    server = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=False
    )
    assert server.returncode == -signal.SIGKILL
    (pid,) = map(int, server.stdout.split())
    assert is_gone(pid)


def test_without_child_processes_grammars_are_compiled_here(monkeypatch, caplog):
    monkeypatch.setattr(compiler_module, "IS_SUPPORTED", False)
    compiler = byte_compiler()
    compiler.check(EASY)
    compiler.check(choice(["f"]))
    assert compiler._pool is None
    (record,) = caplog.records
    assert "without limits on time and memory" in record.message
