from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter, deque

import pytest

from core.contract.errors import ModelLoadError
from core.contract.messages import Abort, Add, EngineCounters, StepOutput, Stop, Work
from core.engine.thread import CoreThread, Died, Ready
from core.observe.step_timer import StepTimer
from tests.support.builders import make_request
from tests.support.scripted import Rig

PATIENCE = 20.0
"""Seconds after which a hanging test fails; a passing test never waits that long."""


class Crashed(BaseException):
    """Like a panic in Rust: not an Exception."""


class TinyEngine:
    """Gives every request ``max_tokens`` outputs, one per step. Each step waits for ``gate``."""

    def __init__(self):
        self.live = {}
        self.timer = StepTimer()
        self.gate = threading.Event()
        self.gate.set()
        self.in_step = threading.Event()
        self.crash = None
        self.fail_all_crash = None
        self.num_checks = 0
        self.on_check = lambda: None
        self.on_prepare = lambda _is_idle: False
        self.num_steps = 0
        self.seen = []
        self.aborted = threading.Semaphore(0)
        self.threads = set()

    @property
    def has_work(self):
        self.num_checks += 1
        self.on_check()
        self.threads.add(threading.get_ident())
        return bool(self.live)

    def add(self, request):
        self.seen.append(request.request_id)
        self.live[request.request_id] = request.params.max_tokens

    def abort(self, request_id):
        self.live.pop(request_id, None)
        self.aborted.release()

    def step(self):
        self.num_steps += 1
        self.in_step.set()
        assert self.gate.wait(PATIENCE)
        if self.crash is not None:
            raise self.crash
        outputs = []
        for request_id in list(self.live):
            self.live[request_id] -= 1
            is_over = self.live[request_id] == 0
            outputs.append(
                StepOutput(
                    request_id=request_id, text=".", finish_reason="length" if is_over else None
                )
            )
            if is_over:
                del self.live[request_id]
        return outputs

    def prepare(self, *, is_idle):
        return self.on_prepare(is_idle)

    def fail_all(self, message):
        if self.fail_all_crash is not None:
            raise self.fail_all_crash
        outputs = [StepOutput(request_id=request_id, error=message) for request_id in self.live]
        self.live.clear()
        return outputs

    def stats(self):
        return EngineCounters(num_running=len(self.live), num_steps=self.num_steps)

    def work(self, request_id):
        return Work(until=float(self.num_steps)) if request_id in self.live else None


class Listener:
    """Records outputs and events of a core thread; tests can wait for them."""

    def __init__(self):
        self.calls = []
        self.events = []
        self._changed = threading.Condition()

    def on_outputs(self, outputs):
        with self._changed:
            self.calls.append(list(outputs))
            self._changed.notify_all()

    def on_event(self, event):
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait_for(self, is_true):
        with self._changed:
            assert self._changed.wait_for(is_true, PATIENCE), "timeout"

    def wait_for_event(self, kind):
        self.wait_for(lambda: any(isinstance(event, kind) for event in self.events))

    def wait_for_ends(self, *request_ids):
        self.wait_for(lambda: set(request_ids) <= self.ends.keys())

    @property
    def ends(self):
        """Last outputs by request id."""
        return {o.request_id: o for outputs in self.calls for o in outputs if o.is_last}


class CountingEvent(threading.Event):
    """An event that records the timeouts of its waits."""

    def __init__(self):
        super().__init__()
        self.timeouts = []

    def wait(self, timeout=None):
        self.timeouts.append(timeout)
        return super().wait(timeout)


class InterposedEvent(CountingEvent):
    """An event that calls ``interpose`` once, at a given place of the loop."""

    def __init__(self, place, interpose):
        super().__init__()
        self._place = place
        self._interpose = interpose

    def reach(self, place):
        if place == self._place:
            self._place = None
            self._interpose()

    def clear(self):
        self.reach("before clear")
        super().clear()
        self.reach("after clear")

    def wait(self, timeout=None):
        self.reach("before wait")
        return super().wait(timeout)


@contextlib.contextmanager
def core_thread(engine, *, load=None, start=True):
    """A core thread that is closed at the end."""
    listener = Listener()
    core = CoreThread(
        load or (lambda: engine), on_outputs=listener.on_outputs, on_event=listener.on_event
    )
    core._wake = CountingEvent()
    if start:
        core.start()
    try:
        yield core, listener
    finally:
        engine.gate.set()
        assert core.close(PATIENCE), "the thread does not end"


def add(request_id, num_tokens=1):
    return Add(make_request(request_id=request_id, max_tokens=num_tokens))


def test_a_request_is_served():
    with core_thread(TinyEngine()) as (core, listener):
        core.submit(add("a", 3))
        listener.wait_for_ends("a")
        assert [[o.text for o in call] for call in listener.calls] == [["."]] * 3
        assert listener.events == [Ready()]
        assert core.is_alive


def test_the_engine_is_called_on_one_thread_only():
    engine = TinyEngine()
    with core_thread(engine) as (core, listener):
        core.submit(add("a", 2))
        listener.wait_for_ends("a")
    assert len(engine.threads) == 1
    assert threading.get_ident() not in engine.threads


def test_commands_are_processed_in_order():
    engine = TinyEngine()
    with core_thread(engine, start=False) as (core, listener):
        for i in range(100):
            core.submit(add(str(i)))
        core.submit(Abort("50"))
        core.start()
        listener.wait_for_ends("99")
        assert engine.seen == [str(i) for i in range(100)]
        assert "50" not in listener.ends


def test_an_abort_is_seen_before_the_next_step():
    engine = TinyEngine()
    with core_thread(engine) as (core, listener):
        engine.gate.clear()
        core.submit(add("a", 10))
        assert engine.in_step.wait(PATIENCE)
        core.submit(Abort("a"))
        engine.gate.set()
        assert engine.aborted.acquire(timeout=PATIENCE)
        core.submit(add("b"))
        listener.wait_for_ends("b")
        assert sum(o.request_id == "a" for call in listener.calls for o in call) == 1


def test_stats_are_those_of_the_last_step():
    engine = TinyEngine()
    with core_thread(engine) as (core, listener):
        core.submit(add("a", 2))
        listener.wait_for_ends("a")
        assert core.stats == EngineCounters(num_steps=2)


# Wake-ups


def test_no_command_of_many_threads_is_lost():
    """Many threads add and abort at random times; every request ends."""
    num_threads, num_requests = 8, 250
    engine = TinyEngine()
    barrier = threading.Barrier(num_threads)
    with core_thread(engine) as (core, listener):

        def produce(number):
            rng = random.Random(number)
            barrier.wait(PATIENCE)
            for i in range(num_requests):
                core.submit(add(f"{number}-{i}", rng.randrange(1, 4)))
                if rng.random() < 0.2:
                    core.submit(Abort(f"{number}-{rng.randrange(i + 1)}x"))  # no such id

        producers = [threading.Thread(target=produce, args=(n,)) for n in range(num_threads)]
        for producer in producers:
            producer.start()
        for producer in producers:
            producer.join(PATIENCE)
        listener.wait_for(lambda: len(engine.seen) == num_threads * num_requests)
        listener.wait_for_ends(*engine.seen)
    assert Counter(engine.seen).most_common(1)[0][1] == 1
    assert set(listener.ends) == set(engine.seen)
    assert all(output.error is None for output in listener.ends.values())


@pytest.mark.parametrize("place", ["before clear", "after clear", "after drain", "before wait"])
def test_a_command_that_arrives_between_clear_and_wait_is_not_lost(place):
    engine = TinyEngine()
    with core_thread(engine, start=False) as (core, listener):
        core._wake = wake = InterposedEvent(place, lambda: core.submit(add("a")))
        engine.on_check = lambda: wake.reach("after drain")
        core.start()
        listener.wait_for_ends("a")


def test_a_sleeping_thread_wakes_for_every_single_command():
    """Each request is submitted when the one before has ended."""
    with core_thread(TinyEngine()) as (core, listener):
        for i in range(500):
            core.submit(add(str(i)))
            listener.wait_for_ends(str(i))


def test_an_idle_thread_does_not_poll():
    """The thread checks the engine once per wake-up and waits without a timeout."""
    engine = TinyEngine()
    with core_thread(engine) as (core, listener):
        listener.wait_for_event(Ready)
        for _ in range(100):
            core.submit(Abort("unknown"))
            assert engine.aborted.acquire(timeout=PATIENCE)
        assert engine.num_steps == 0
    # a command that arrives between clear and drain costs one more check
    assert engine.num_checks <= 2 * 100 + 2
    assert len(core._wake.timeouts) <= engine.num_checks
    assert set(core._wake.timeouts) == {None}


def test_an_idle_thread_prepares_until_there_is_no_more_or_a_command_comes():
    engine = TinyEngine()
    left = threading.Semaphore(3)
    is_done, prepared = threading.Event(), []

    def prepare(is_idle):
        prepared.append((len(engine.live), is_idle))
        has_more = left.acquire(blocking=False)
        if not has_more:
            is_done.set()
        return has_more

    engine.on_prepare = prepare
    with core_thread(engine) as (core, listener):
        assert is_done.wait(PATIENCE)
        assert prepared == [(0, True)] * 4
        engine.on_prepare = lambda _is_idle: True  # it has no end
        core.submit(add("first"))
        listener.wait_for_ends("first")


def test_a_little_is_prepared_after_each_step():
    engine = TinyEngine()
    with core_thread(engine, start=False) as (core, listener):
        prepared = []
        engine.on_prepare = lambda is_idle: prepared.append((engine.num_steps, is_idle))
        core.submit(add("first", 3))
        core.start()
        listener.wait_for_ends("first")
    assert prepared[:3] == [(1, False), (2, False), (3, False)]


def test_submit_does_not_wait_for_a_step():
    engine = TinyEngine()
    with core_thread(engine) as (core, listener):
        engine.gate.clear()
        core.submit(add("first", 2))
        assert engine.in_step.wait(PATIENCE)
        for i in range(1_000):
            core.submit(add(str(i)))
        assert engine.num_steps == 1  # still the first step
        assert listener.calls == []
        engine.gate.set()
        listener.wait_for_ends("first", *map(str, range(1_000)))


def test_a_step_has_one_delivery():
    engine = TinyEngine()
    with core_thread(engine, start=False) as (core, listener):
        for i in range(20):
            core.submit(add(str(i), 5))
        core.start()
        listener.wait_for_ends(*map(str, range(20)))
        assert engine.num_steps == 5
        assert [len(call) for call in listener.calls] == [20] * 5


def test_a_step_without_outputs_has_no_delivery():
    rig = Rig(max_num_batched_tokens=8)
    listener = Listener()
    core = CoreThread(
        lambda: rig.engine, on_outputs=listener.on_outputs, on_event=listener.on_event
    )
    core.start()
    core.submit(Add(make_request(range(20), request_id="r", max_tokens=1)))
    listener.wait_for_ends("r")
    assert len(rig.runner.batches) == 3
    assert [len(call) for call in listener.calls] == [1]
    assert core.close(PATIENCE)


def test_the_delivery_of_each_step_is_timed():
    rig, listener = Rig(), Listener()
    seconds = iter(range(10**6))
    rig.engine.timer.clock = lambda: next(seconds) * 10**9
    core = CoreThread(
        lambda: rig.engine, on_outputs=listener.on_outputs, on_event=listener.on_event
    )
    core.start()
    core.submit(Add(make_request(request_id="r", max_tokens=3)))
    listener.wait_for_ends("r")
    assert core.close(PATIENCE)
    assert rig.engine.timer.seconds()["delivery"] == 3.0


def test_requests_join_and_leave_between_steps():
    """The real engine: requests join late and some are aborted; all texts are right."""
    rig = Rig(num_blocks=40, max_num_seqs=4)
    listener = Listener()
    core = CoreThread(
        lambda: rig.engine, on_outputs=listener.on_outputs, on_event=listener.on_event
    )
    texts = {str(i): f"this is the text of number {i}".encode() for i in range(30)}
    rig.runner.scripts.update({name: list(text) for name, text in texts.items()})
    core.start()
    for name, text in texts.items():
        core.submit(Add(make_request(b"go", request_id=name, max_tokens=len(text))))
        if int(name) % 5 == 4:
            core.submit(Abort(name))
            listener.wait_for_ends(str(int(name) - 1))
    kept = [name for name in texts if int(name) % 5 != 4]
    listener.wait_for_ends(*kept)
    assert core.close(PATIENCE)
    assert core.stats.num_free_blocks == 40
    said = Counter()
    for outputs in listener.calls:
        for output in outputs:
            said.update({output.request_id: len(output.text)})
    assert all(said[name] == len(texts[name]) for name in kept)
    rig.engine.check()


# Outputs that wait for the next step to compute


class LateEngine(TinyEngine):
    """Hands over the outputs of a step in the next one, which begins to compute after ``gate``."""

    def __init__(self):
        super().__init__()
        self.timer.hand_over.may_wait = True

    def step(self):
        assert self.gate.wait(PATIENCE)
        if self.crash is None:
            self.timer.hand_over.release()
        return super().step()


def test_outputs_wait_until_the_next_step_computes():
    engine = LateEngine()
    with core_thread(engine, start=False) as (core, listener):
        num_calls = []
        engine.on_check = lambda: num_calls.append(len(listener.calls))
        core.submit(add("a", 3))
        core.start()
        listener.wait_for_ends("a")
        assert [[o.text for o in call] for call in listener.calls] == [["."]] * 3
    # the thread asks twice a step whether there is work: before it, and after it
    assert num_calls[:6] == [0, 0, 0, 1, 1, 2]


def test_the_last_outputs_do_not_wait_for_a_step_that_does_not_come():
    engine = LateEngine()
    with core_thread(engine) as (core, listener):
        for name in "ab":
            core.submit(add(name))
            listener.wait_for_ends(name)


def test_outputs_that_wait_are_not_lost_if_the_rest_is_aborted():
    """The last output of one request waits for a step that an abort makes needless."""
    engine = LateEngine()
    with core_thread(engine, start=False) as (core, listener):
        core.submit(add("short"))
        core.submit(add("long", 100))
        checks = iter(range(100))
        # the second check is after the step
        engine.on_check = lambda: core.submit(Abort("long")) if next(checks) == 1 else None
        core.start()
        listener.wait_for_ends("short")
        assert listener.ends["short"].finish_reason == "length"


def crash(engine, _core):
    engine.crash = RuntimeError("bang")


def stop(_engine, core):
    core.submit(Stop())


@pytest.mark.parametrize(
    ("act", "error"), [(crash, "The engine died."), (stop, "The server is shutting down.")]
)
def test_outputs_that_wait_come_before_the_errors_of_an_end(act, error):
    engine = LateEngine()
    with core_thread(engine, start=False) as (core, listener):
        checks = iter(range(100))
        engine.on_check = lambda: act(engine, core) if next(checks) == 1 else None
        core.submit(add("a", 5))
        core.start()
        listener.wait_for_ends("a")
        assert [o.text or o.error for call in listener.calls for o in call] == [".", error]


# Close


def test_close_ends_every_live_request_with_an_error():
    engine = TinyEngine()
    with core_thread(engine) as (core, listener):
        engine.gate.clear()
        core.submit(add("running", 100))
        assert engine.in_step.wait(PATIENCE)
        core.submit(add("waiting", 100))
        assert not core.close(0)  # the step is still running
        engine.gate.set()
        assert core.close(PATIENCE)
        assert not core.is_alive
        assert {r: (o.error, o.finish_reason) for r, o in listener.ends.items()} == {
            "running": ("The server is shutting down.", None),
            "waiting": ("The server is shutting down.", None),
        }
        assert engine.num_steps == 1
        assert listener.events == [Ready()]
        assert core.stats.num_running == 0


def test_close_may_be_called_twice():
    with core_thread(TinyEngine()) as (core, listener):
        listener.wait_for_event(Ready)
        assert core.close(PATIENCE)
        assert core.close(PATIENCE)
        assert core.close(0)


def test_close_wakes_a_sleeping_thread():
    engine = TinyEngine()
    with core_thread(engine) as (core, _listener):
        core.submit(Abort("unknown"))
        assert engine.aborted.acquire(timeout=PATIENCE)
        assert core.close(PATIENCE)


def test_close_joins_with_a_time_limit():
    engine = TinyEngine()
    with core_thread(engine) as (core, _listener):
        engine.gate.clear()
        core.submit(add("a"))
        assert engine.in_step.wait(PATIENCE)
        assert not core.close(0.01)
        assert core.is_alive


def test_close_from_many_threads_at_once():
    with core_thread(TinyEngine()) as (core, listener):
        listener.wait_for_event(Ready)
        barrier = threading.Barrier(4)
        results = []

        def close():
            barrier.wait(PATIENCE)
            results.append(core.close(PATIENCE))

        closers = [threading.Thread(target=close) for _ in range(4)]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join(PATIENCE)
        assert results == [True] * 4


def test_close_may_be_called_before_start():
    with core_thread(TinyEngine(), start=False) as (core, listener):
        assert core.close(0)
        assert not core.is_alive
        assert listener.events == []


def test_a_thread_closed_before_start_ends_at_once():
    with core_thread(TinyEngine(), start=False) as (core, listener):
        core.close(0)
        core.submit(add("a"))
        core.start()
        assert core.close(PATIENCE)
        assert listener.events == []
        assert listener.ends["a"].error


def test_close_during_load():
    engine = TinyEngine()
    loading, proceed = threading.Event(), threading.Event()

    def load():
        loading.set()
        assert proceed.wait(PATIENCE)
        return engine

    with core_thread(engine, load=load) as (core, listener):
        assert loading.wait(PATIENCE)
        core.submit(add("early", 5))
        assert not core.close(0)
        proceed.set()
        assert core.close(PATIENCE)
        assert listener.events == []  # it was never ready
        assert listener.ends["early"].error == "The server is shutting down."
        assert engine.num_steps == 0


def test_a_stop_command_ends_the_thread_too():
    with core_thread(TinyEngine()) as (core, _listener):
        core.submit(Stop())
        core._thread.join(PATIENCE)
        assert not core.is_alive


def test_commands_during_load_are_kept():
    engine = TinyEngine()
    proceed = threading.Event()

    def load():
        assert proceed.wait(PATIENCE)
        return engine

    with core_thread(engine, load=load) as (core, listener):
        core.submit(add("early"))
        proceed.set()
        listener.wait_for_ends("early")
        assert listener.ends["early"].error is None


def test_commands_after_close_are_ignored():
    with core_thread(TinyEngine()) as (core, listener):
        core.close(PATIENCE)
        core.submit(add("late"))
        core.submit(Abort("late"))
        assert listener.calls == []


# Crashes


@pytest.mark.parametrize("error", [RuntimeError("bang"), Crashed("bang"), SystemExit("bang")])
def test_a_crash_ends_every_request_and_reports_that_the_engine_died(error):
    engine = TinyEngine()
    order = deque()
    with core_thread(engine) as (core, listener):
        engine.gate.clear()
        core.submit(add("a", 5))
        assert engine.in_step.wait(PATIENCE)
        engine.crash = error
        engine.gate.set()
        listener.wait_for_event(Died)
        order.extend(listener.events)
        assert listener.ends["a"].error == "The engine died."
        assert listener.ends["a"].finish_reason is None
        assert order == deque([Ready(), Died("the engine died: bang", is_load_error=False)])
        core._thread.join(PATIENCE)
        assert not core.is_alive
        assert core.stats.num_running == 0


def test_a_crash_is_reported_even_if_requests_cannot_be_ended():
    engine = TinyEngine()
    engine.crash = RuntimeError("bang")
    engine.fail_all_crash = RuntimeError("and again")
    with core_thread(engine) as (core, listener):
        core.submit(add("a"))
        listener.wait_for_event(Died)
        assert listener.events[-1].message == "the engine died: bang"


def test_a_crash_while_adding_a_request_is_reported():
    engine = TinyEngine()
    engine.add = lambda _request: 1 / 0
    with core_thread(engine) as (core, listener):
        core.submit(add("a"))
        listener.wait_for_event(Died)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModelLoadError("there is no such model"), "there is no such model"),
        (RuntimeError("bang"), "loading failed: bang"),
        (SystemExit("bang"), "loading failed: bang"),
        (Crashed("bang"), "loading failed: bang"),
    ],
)
def test_a_load_error_is_reported(error, message):
    def load():
        raise error

    with core_thread(TinyEngine(), load=load) as (core, listener):
        listener.wait_for_event(Died)
        assert listener.events == [Died(message, is_load_error=True)]
        assert listener.calls == []
        assert core.close(PATIENCE)


def test_submit_to_a_dead_engine_does_nothing():
    engine = TinyEngine()
    engine.crash = RuntimeError("bang")
    with core_thread(engine) as (core, listener):
        core.submit(add("a"))
        listener.wait_for_event(Died)
        core.submit(add("b"))
        assert core.close(PATIENCE)
        assert set(listener.ends) == {"a"}


def test_the_work_of_a_request_can_be_asked_for_at_any_time():
    engine = TinyEngine()
    with core_thread(engine) as (core, listener):
        listener.wait_for_event(Ready)
        engine.gate.clear()
        core.submit(add("a"))
        assert engine.in_step.wait(5)
        assert core.work("a") is not None
        assert core.work("b") is None
        engine.gate.set()
    idle = CoreThread(TinyEngine, on_outputs=lambda _: None, on_event=lambda _: None)
    assert idle.work("a") is None, "nothing is loaded"


def test_the_histograms_of_the_engine_can_be_read_from_any_thread():
    rig, listener = Rig(), Listener()
    core = CoreThread(
        lambda: rig.engine, on_outputs=listener.on_outputs, on_event=listener.on_event
    )
    assert core.histograms.step.read().num_values == 0  # before there is an engine
    core.start()
    core.submit(Add(make_request(request_id="r", max_tokens=3)))
    listener.wait_for_ends("r")
    assert core.close(PATIENCE)
    assert core.histograms.step.read().num_values == 3
    assert core.histograms.inter_token.read().num_values == 2
