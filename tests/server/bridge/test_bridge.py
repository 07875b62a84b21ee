import random
import threading
import tracemalloc

import anyio
import pytest
from anyio import lowlevel

from core.contract.errors import ModelLoadError, Unavailable
from core.engine.thread import Died
from server.bridge.bridge import DELIVERY_FAILED, TOO_SLOW, BridgeState, EngineBridge
from server.bridge.stream import BUFFERED_OUTPUTS, MAX_UNREAD
from tests.support.engines import AnsweringEngine, GatedEngine, last, out, request, settle, words

pytestmark = pytest.mark.anyio


class PanicException(BaseException):
    """As PyO3 raises it."""


async def read_all(stream):
    """Every output of a response in order."""
    outputs = []
    while not stream.is_finished:
        outputs += await stream.receive()
    return outputs


class TestAdmission:
    async def test_refuses_while_loading(self, engine, soon):
        gate, ready = threading.Event(), anyio.Event()

        def load():
            gate.wait()
            return engine

        bridge = EngineBridge(load, on_event=lambda _: ready.set())
        bridge.start()
        assert bridge.state is BridgeState.LOADING
        with pytest.raises(Unavailable, match="loading"):
            bridge.open([request()])
        gate.set()
        with soon():
            await ready.wait()
        assert bridge.state is BridgeState.READY
        bridge.open([request()]).close()
        engine.free()
        assert bridge.close()

    async def test_refuses_while_draining(self, bridge, soon):
        with soon():
            await bridge.drain(1)
        with pytest.raises(Unavailable, match="shutting down"):
            bridge.open([request()])

    async def test_refuses_after_a_failure_to_load(self, soon):
        def load():
            raise ModelLoadError("no such model")

        events, notified = [], anyio.Event()
        bridge = EngineBridge(load, on_event=lambda event: (events.append(event), notified.set()))
        bridge.start()
        with soon():
            await notified.wait()
        assert events == [Died("no such model", is_load_error=True)]
        assert bridge.state is BridgeState.FAILED
        with pytest.raises(Unavailable, match="failed"):
            bridge.open([request()])
        assert bridge.close()
        assert bridge.state is BridgeState.FAILED  # also after closing

    async def test_ancestor_add_returns_an_id_without_waiting_for_a_step(self, bridge, engine):
        first = bridge.open([request("first")])
        await engine.until(lambda e: e.added)
        # The core thread is now inside a step that ends when the test says so.
        second = bridge.open([request("second")])
        assert [r.request_id for r in second.requests] == ["second"]
        assert engine.num_steps == 0
        await engine.admit(2)
        first.close()
        second.close()

    async def test_ancestor_add_after_close_does_not_hang(self, bridge, engine):
        engine.free()
        assert bridge.close()
        with pytest.raises(Unavailable):
            bridge.open([request()])


class TestRouting:
    async def test_ancestor_a_stream_is_registered_before_its_request_can_finish(
        self, start_bridge, soon
    ):
        class EagerEngine(AnsweringEngine):
            def add(self, new):
                registered.append(new.request_id in bridge._routes)
                super().add(new)

        registered = []
        bridge = await start_bridge(EagerEngine(words("done")))
        with soon():
            for i in range(50):
                with bridge.open([request(f"{i}a"), request(f"{i}b")]) as stream:
                    outputs = await read_all(stream)
                    assert [index for index, _ in outputs] == [0, 1]
        assert registered == [True] * 100

    async def test_outputs_reach_their_own_response(self, bridge, engine, soon):
        one, two = bridge.open([request("a"), request("b")]), bridge.open([request("c")])
        await engine.admit(3)
        engine.step_with(out("c", "C"), last("b", "B"), out("a", "A"), out("nobody", "?"))
        engine.step_with(last("c", "!"), last("a", "."))
        with soon():
            assert [(i, o.text) for i, o in await read_all(one)] == [(1, "B"), (0, "A"), (0, ".")]
            assert [(i, o.text) for i, o in await read_all(two)] == [(0, "C"), (0, "!")]
        assert not bridge._routes
        one.close()
        two.close()
        assert engine.aborted == []

    async def test_ancestor_worker_thread_runs_every_step(self, bridge, engine, soon):
        stream = bridge.open([request()])
        engine.step_with(out())
        engine.step_with(last())
        with soon():
            await read_all(stream)
        stream.close()
        assert engine.thread_names == {"roseinfer-core"}

    async def test_the_loop_has_a_core_until_it_has_delivered_a_step(self, bridge, engine):
        events = []

        class Lender:
            def lend(self):
                events.append("lent")

            def give_back(self):
                events.append("returned")

        engine.timer.hand_over.lender = Lender()
        stream = bridge.open([request("a")])
        stream.relay_with(lambda _outputs: events.append("rendered") or True)
        async with anyio.create_task_group() as group:
            group.start_soon(stream.receive)
            await engine.admit(1)
            events.clear()
            await engine.say(out("a", "x"))
            assert events == ["lent", "rendered", "returned"]
            group.cancel_scope.cancel()
        stream.close()

    async def test_outputs_of_an_aborted_request_are_dropped(self, bridge, engine, soon):
        gone, stays = bridge.open([request("gone")]), bridge.open([request("stays")])
        await engine.admit(2)
        gone.close()
        engine.step_with(out("gone", "too late"))
        engine.step_with(last("stays", "ok"))
        with soon():
            assert [o.text for _, o in await read_all(stays)] == ["ok"]
        stays.close()

    async def test_ancestor_a_closed_stream_discards_its_request(self, bridge, engine):
        with bridge.open([request("a"), request("b")]) as stream:
            await engine.admit(2)
            num_steps = engine.num_steps
            engine.step_with(out("a", "x"), last("b", "y"))
            await engine.until(lambda e: e.num_steps > num_steps)
            assert [o.text for _, o in await stream.receive()] == ["x", "y"]
        engine.step_with()
        await engine.until(lambda e: e.aborted)
        assert engine.aborted == ["a"]  # finished requests are not aborted
        assert not engine.live
        assert not bridge._routes

    async def test_closing_twice_aborts_once(self, bridge, engine):
        stream = bridge.open([request("a")])
        for _ in range(3):
            stream.close()
        other = bridge.open([request("b")])
        engine.step_with()
        await engine.until(lambda e: "b" in e.live)
        assert engine.aborted in ([], ["a"])  # both commands may be drained at once
        assert "a" not in engine.live
        other.close()

    async def test_an_exception_in_the_response_aborts(self, bridge, engine):
        async def respond():
            with bridge.open([request("a")]):
                await engine.until(lambda e: e.live)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await respond()
        engine.step_with()
        await engine.until(lambda e: e.aborted == ["a"])

    async def test_nothing_is_lost_when_a_wait_is_cancelled(self, bridge):
        """In either order of output and cancellation within one turn of the loop."""
        stream = bridge.open([request()])
        for output_first in (True, False):
            received = []

            async def wait(scope, received=received):
                with scope:
                    received.extend(await stream.receive())

            async with anyio.create_task_group() as tasks:
                scope = anyio.CancelScope()
                tasks.start_soon(wait, scope)
                await settle()
                actions = [lambda: stream.push(0, out(text="x")), scope.cancel]
                for act in actions if output_first else reversed(actions):
                    act()
            received += stream.take()
            assert [o.text for _, o in received] == ["x"]
        stream.close()

    async def test_a_panic_while_one_response_is_rendered_ends_that_one_only(self, bridge):
        def panic(_outputs):
            raise PanicException

        received = {}

        async def read(name, stream):
            received[name] = await stream.receive()

        bad, good = bridge.open([request("bad")]), bridge.open([request("good")])
        bad.relay_with(panic)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read, "bad", bad)
            tasks.start_soon(read, "good", good)
            await settle()
            bridge._deliver([out("bad", "x"), out("good", "y")])
        assert received["bad"][-1][1].error == DELIVERY_FAILED
        assert [o.text for _, o in received["good"]] == ["y"]
        bad.close()
        good.close()

    async def test_one_wait_returns_all_outputs(self, bridge):
        """A reader is woken once per step, or once for all steps that it missed."""
        stream = bridge.open([request("a"), request("b")])
        batches = []

        async def read():
            while len(batches) < 2:
                batches.append([o.text for _, o in await stream.receive()])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await settle()
            bridge._deliver([out("a", "1"), out("b", "2")])
            bridge._deliver([out("a", "3")])
            await settle()
            bridge._deliver([out("b", "4")])
        assert batches == [["1", "2", "3"], ["4"]]
        stream.close()

    async def test_a_nudge_wakes_only_a_waiting_reader(self, bridge):
        stream = bridge.open([request()])
        batches = []

        async def read():
            while len(batches) < 2:
                batches.append(await stream.receive())

        stream.nudge()  # without a waiting reader
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await settle()
            assert batches == []
            stream.nudge()
            stream.nudge()
            await settle()
            assert batches == [[]]
            stream.push(0, out(text="x"))
            stream.nudge()
        assert [o.text for _, o in batches[1]] == ["x"]
        stream.close()


class TestSlowReaders:
    async def test_ancestor_the_core_never_waits_for_a_client(self, bridge, engine, soon):
        stream = bridge.open([request()])
        n = 20 * BUFFERED_OUTPUTS
        for i in range(n):
            engine.step_with(out(text=f"{i},", num_output_tokens=i + 1))
        engine.step_with(last(num_output_tokens=n + 1))
        await engine.until(lambda e: e._num_delivered == n + 1)
        await settle()  # all outputs are buffered
        with soon():
            outputs = [o for _, o in await read_all(stream)]
        assert "".join(o.text for o in outputs) == "".join(f"{i}," for i in range(n))
        assert len(outputs) == BUFFERED_OUTPUTS + 1  # the rest is merged
        assert outputs[-1].finish_reason == "stop"
        assert outputs[-1].num_output_tokens == n + 1
        stream.close()

    async def test_buffer_and_backlog_keep_the_order_within_a_choice(self, bridge):
        stream = bridge.open([request("a"), request("b")])
        n = BUFFERED_OUTPUTS + 3
        for i in range(n):
            stream.push(i % 2, out("ab"[i % 2], f"{i},"))
        outputs = stream.take()
        assert len(outputs) == BUFFERED_OUTPUTS + 2  # the last ones of each choice are merged
        for index in range(2):
            text = "".join(o.text for i, o in outputs if i == index)
            assert text == "".join(f"{i}," for i in range(index, n, 2))
        assert stream.take() == []
        stream.push(1, out("b", "again"))  # the backlog is empty, so it is not merged
        assert [(i, o.text) for i, o in stream.take()] == [(1, "again")]
        stream.close()

    async def test_an_error_after_a_backlog_keeps_the_text_before_it(self, bridge):
        stream = bridge.open([request()])
        for _ in range(BUFFERED_OUTPUTS):
            stream.push(0, out())
        stream.push(0, out(text="early "))
        bridge.fail_all("over")
        *_, (_, output) = stream.take()
        assert (output.text, output.error, output.finish_reason) == ("early ", "over", None)
        assert stream.is_finished
        stream.close()

    async def test_a_stream_that_nobody_reads_keeps_a_bounded_text(self, bridge, engine, soon):
        slow, fast = bridge.open([request("slow"), request("too")]), bridge.open([request("fast")])
        await engine.admit(3)
        tracemalloc.start()
        try:
            for _ in range(100):
                bridge._deliver([out("slow", "x" * 10_000), out("fast", "y")])
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < BUFFERED_OUTPUTS * 10_000 + 3 * MAX_UNREAD
        assert [o.error for _, o in slow.take()] == [TOO_SLOW]
        assert slow.is_finished
        assert sum(len(o.text) for _, o in fast.take()) == 100
        engine.step_with()
        await engine.until(lambda e: {"slow", "too"} <= set(e.aborted))
        slow.close()
        fast.close()

    @pytest.mark.parametrize("seed", range(25))
    async def test_nothing_is_lost_under_random_interleavings(self, seed, bridge, engine, soon):
        """Readers sleep, poll and wait; outputs come in bursts; some readers close early."""
        rng = random.Random(seed)
        streams = {}
        for name in "xyz"[: rng.randint(1, 3)]:
            ids = [f"{name}{i}" for i in range(rng.randint(1, 2))]
            streams[name] = bridge.open([request(i) for i in ids])
        expected = {r.request_id: "" for s in streams.values() for r in s.requests}
        got = dict.fromkeys(expected, "")
        leavers = {name for name in streams if rng.random() < 0.2}

        async def read(name, stream):
            with stream:
                while not stream.is_finished:
                    match rng.randrange(3):
                        case 0:
                            for _ in range(rng.randrange(6)):
                                await lowlevel.checkpoint()
                        case 1:
                            for index, output in stream.take():
                                got[f"{name}{index}"] += output.text
                        case _:
                            for index, output in await stream.receive():
                                got[f"{name}{index}"] += output.text
                    if name in leavers and rng.random() < 0.1:
                        return

        live = list(expected)
        with soon():
            async with anyio.create_task_group() as tasks:
                for name, stream in streams.items():
                    tasks.start_soon(read, name, stream)
                for number in range(150):
                    step = []
                    for request_id in list(live):
                        if rng.random() < 0.6:
                            text = f"<{number}>"
                            expected[request_id] += text
                            step.append(out(request_id, text))
                    engine.step_with(*step)
                    if rng.random() < 0.3:
                        await lowlevel.checkpoint()
                engine.step_with(*[last(request_id, "end") for request_id in live])
                expected = {request_id: text + "end" for request_id, text in expected.items()}
        for request_id, text in got.items():
            if request_id[0] in leavers:
                assert expected[request_id].startswith(text)
            else:
                assert text == expected[request_id]
        assert not bridge._routes


class TestShutdown:
    async def test_fail_all_ends_every_choice_once_and_aborts_it(self, bridge, engine, soon):
        streams = [bridge.open([request("a"), request("b")]), bridge.open([request("c")])]
        await engine.admit(3)
        bridge.fail_all("over")
        bridge.fail_all("again")
        for stream in streams:
            with soon():
                outputs = await read_all(stream)
            assert {o.error for _, o in outputs} == {"over"}
            assert len(outputs) == len(stream)
            stream.close()
        engine.step_with(out("a", "late"))
        await engine.until(lambda e: not e.live)
        assert not bridge._routes

    async def test_drain_waits_for_open_responses(self, bridge, engine, soon):
        stream = bridge.open([request()])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bridge.drain, 1000)
            await settle()
            assert bridge.state is BridgeState.DRAINING
            engine.step_with(last(text="in time"))
            with soon():
                assert [o.text for _, o in await read_all(stream)] == ["in time"]
            await settle()
            assert len(tasks._tasks) == 1  # everything is generated, not everything sent
            stream.close()
        assert not engine.aborted

    async def test_drain_is_immediate_when_nothing_is_open(self, bridge, soon):
        with soon():
            await bridge.drain(1000)
        assert bridge.state is BridgeState.DRAINING

    async def test_drain_ends_open_responses_after_the_timeout(self, bridge, engine, soon):
        stream = bridge.open([request()])
        outputs = []

        async def respond():
            with stream:
                outputs.extend(await read_all(stream))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(respond)
            with soon():
                await bridge.drain(0)
        assert [o.error for _, o in outputs] == ["The server is shutting down."]

    async def test_drain_cancels_a_response_that_is_not_read(self, bridge, soon, monkeypatch):
        monkeypatch.setattr("server.bridge.bridge.CLOSE_TIMEOUT", 0.01)
        stream = bridge.open([request()])
        was_cancelled = False

        async def respond():
            nonlocal was_cancelled
            with stream:
                with anyio.CancelScope() as scope:
                    stream.bind(scope)
                    await anyio.sleep_forever()  # a blocked send
                was_cancelled = scope.cancelled_caught

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(respond)
            await settle()
            with soon():
                await bridge.drain(0)
        assert was_cancelled
        assert not bridge._routes

    async def test_drain_keeps_the_failed_state(self, bridge, engine, soon):
        stream = bridge.open([request()])
        engine.crash()
        with soon():
            await stream.receive()
            stream.close()
            await bridge.drain(1)
        assert bridge.state is BridgeState.FAILED

    async def test_ancestor_close_is_idempotent_and_ends_every_open_stream(
        self, bridge, engine, soon
    ):
        stream = bridge.open([request()])
        engine.free()
        assert bridge.close()
        assert bridge.close()
        with soon():
            [(_, output)] = await read_all(stream)
        assert output.error == "The server is shutting down."
        assert output.finish_reason is None  # an error is not a stop
        stream.close()

    async def test_close_before_start(self):
        bridge = EngineBridge(GatedEngine)
        assert bridge.close()

    async def test_close_does_not_wait_for_a_step_that_hangs(self, bridge, engine, monkeypatch):
        monkeypatch.setattr("server.bridge.bridge.CLOSE_TIMEOUT", 0.01)
        stream = bridge.open([request()])
        await engine.until(lambda e: e.added)
        assert not bridge.close()
        engine.free()
        stream.close()
        monkeypatch.undo()
        assert bridge.close()

    async def test_a_crash_ends_every_stream_with_an_error(self, bridge, engine, soon, caplog):
        streams = [bridge.open([request(f"{i}a"), request(f"{i}b")]) for i in range(3)]
        engine.step_with(out("0a", "some text"))
        engine.crash()
        with soon():
            for stream in streams:
                ends = [o for _, o in await read_all(stream) if o.is_last]
                assert [o.error for o in ends] == ["The engine died."] * 2
                assert [o.finish_reason for o in ends] == [None, None]
                stream.close()
        assert bridge.state is BridgeState.FAILED
        assert not bridge._routes
        assert "secret" in caplog.text  # only in the operator's log
        with pytest.raises(Unavailable, match=r"^The engine has failed\.$"):
            bridge.open([request()])

    @pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()])
    async def test_every_end_of_the_core_thread_is_reported(self, error, bridge, engine, soon):
        class PoisonedError(Exception):
            pass

        def poisoned(_message):
            raise PoisonedError

        engine.fail_all = poisoned
        stream = bridge.open([request()])

        def die():
            raise error

        engine.step = die
        engine.step_with()
        with soon():
            [(_, output)] = await read_all(stream)
        assert output.error == "The engine died."
        assert bridge.state is BridgeState.FAILED
        stream.close()

    async def test_a_request_to_a_dying_engine_fails(self, bridge, engine, soon):
        first = bridge.open([request("first")])
        await engine.until(lambda e: e.added)
        engine.crash()
        bridge._core._thread.join(10)  # dead, but the loop does not know yet
        assert bridge.state is BridgeState.READY
        second = bridge.open([request("second")])
        with soon():
            for stream in (first, second):
                [(_, output)] = await read_all(stream)
                assert output.error == "The engine died."
                stream.close()

    async def test_a_stream_that_breaks_ends_alone(self, bridge, engine, soon):
        """The outputs of a step are delivered to the other responses all the same."""
        broken, good = bridge.open([request("broken"), request("other")]), bridge.open([request()])

        def push(_index, _output):
            raise RuntimeError("secret")

        broken.push = push
        await engine.admit(3)
        engine.step_with(out("broken", "x"), out("r", "Hi"))
        with soon():
            [(_, output)] = await read_all(broken)
            assert output.error == "The server failed on this request."
            assert [o.text for _, o in await good.receive()] == ["Hi"]
        broken.close()
        engine.step_with(last("r", "!"))
        with soon():
            assert [o.text for _, o in await read_all(good)] == ["!"]
        good.close()
        engine.free()
        await engine.until(lambda e: {"broken", "other"} <= set(e.aborted))
