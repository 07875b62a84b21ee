"""Models take turns in memory, and no stream is lost by that."""

import concurrent.futures
import os
import signal
import time
from pathlib import Path

import pytest

from compat_tests.support.waiting import eventually, pause
from tests.support.router_load import Load
from tests.support.routers import CHAT, events_of, is_running, is_whole, scripted, still_running

ONE = {"max_loaded": 1, "min_loaded": 0.0}


def models(*names, **fields):
    return {name: {"command": scripted(name)} | fields for name in names}


@pytest.fixture
def pool():
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        yield pool


@pytest.fixture(scope="module")
def router(start_router):
    messy = ["sh", "-c", 'sleep 1000 & exec "$@"', "sh", *scripted("messy")]
    return start_router(ONE | {"models": models("a", "b", "c") | {"messy": {"command": messy}}})


@pytest.fixture(scope="module")
def roomy(start_router):
    """Room for all: a router whose models load slowly, never, or not at all, or hang."""
    config = {
        "stop_timeout": 0.2,
        "load_timeout": 5.0,
        "wait_timeout": 3.0,
        "max_waiting": 3,
        "probe_after": 0.2,
    }
    commands = {
        "slow": scripted("slow", "--load-ms", "500"),
        "slow-too": scripted("slow-too", "--load-ms", "500"),
        "never": scripted("never", "--load-ms", "60000", "--stubborn"),
        "missing": ["/nonexistent", "{port}"],
    }
    idle = {"idle": {"command": scripted("idle"), "keep_alive": 0.2, "preload": True}}
    rest = {name: {"command": command} for name, command in commands.items()}
    all_models = idle | rest | models("sick", "hung", "silent")
    return start_router(config | {"models": all_models}, "--keep-alive-interval", "0.1")


def test_a_busy_model_is_unloaded_only_after_its_streams(router, pool):
    slow = {"stream": True, "n": 10, "delay_ms": 30}
    first = pool.submit(router.ask, "a", **slow)
    eventually(lambda: router.model_stats("a")["num_running"] == 1)
    second = pool.submit(router.ask, "b", stream=True)
    eventually(lambda: router.model_stats("a")["state"] == "draining")
    third = pool.submit(router.ask, "a", stream=True)
    eventually(lambda: router.model_stats("a")["num_waiting"] == 1)
    assert not first.done()  # the draining model takes no new request, or this would never end
    assert is_whole(first.result().body, 10)
    assert is_whole(second.result().body, 3)
    assert is_whole(third.result().body, 3)
    eventually(lambda: len(router.children()) == 1)
    stats = [router.model_stats(name) for name in "ab"]
    assert [s["num_cut"] + s["num_failed"] for s in stats] == [0, 0]
    assert stats[0]["num_loads"] == 2


def test_a_model_that_nobody_waits_for_any_more_leaves_the_other_where_it_is(router, pool):
    router.ask("a")
    loads = router.model_stats("a")["num_loads"]
    stream = pool.submit(router.ask, "a", stream=True, n=20, delay_ms=20)
    eventually(lambda: router.model_stats("a")["num_running"] == 1)
    with router.connect() as connection:
        connection.send("POST", CHAT, {"model": "b"})
        eventually(lambda: router.model_stats("a")["state"] == "draining")
    eventually(lambda: router.model_stats("a")["state"] == "ready")
    assert is_whole(stream.result().body, 20)
    assert router.model_stats("a")["num_loads"] == loads


@pytest.mark.parametrize(
    "num_swaps",
    [
        pytest.param(30, id="quick"),
        pytest.param(1000, id="bar", marks=pytest.mark.soak),
    ],
)
def test_swaps_under_load_lose_nothing(router, num_swaps):
    """Streams of three models at once where one fits; processes that die on SIGTERM at once."""
    before = sum(router.model_stats(name)["num_unloads"] for name in "abc")
    load = Load(router, ["a", "b", "c"], num_clients=9)
    with load:
        eventually(
            lambda: (
                sum(router.model_stats(name)["num_unloads"] for name in "abc") >= before + num_swaps
            ),
            timeout=30 + num_swaps,
        )
    assert load.lost == []
    assert load.num_whole >= num_swaps
    print(f"{num_swaps} swaps, {load.num_whole} streams, {len(load.lost)} lost")  # noqa: T201


def test_memory_decides_which_models_are_loaded_at_once(start_router):
    config = {"memory": "10GiB", "min_loaded": 0.0}
    sizes = {"small": "2GiB", "middle": "7GiB", "big": "9GiB"}
    commands = {n: {"command": scripted(n), "memory": size} for n, size in sizes.items()}
    router = start_router(config | {"models": commands})

    def loaded():
        return {name for name in sizes if router.model_stats(name)["state"] == "ready"}

    router.ask("small")
    router.ask("middle")
    assert loaded() == {"small", "middle"}
    router.ask("big")
    assert loaded() == {"big"}


def test_an_idle_model_is_unloaded_and_comes_back(roomy):
    eventually(lambda: roomy.model_stats("idle")["num_loads"] >= 1)  # nobody asked for it
    eventually(lambda: roomy.model_stats("idle")["state"] == "unloaded")
    assert roomy.ask("idle").status == 200


def test_a_load_that_fails_brings_the_former_model_back(start_router, pool):
    bad = {"command": scripted("bad", "--fail")}
    router = start_router(ONE | {"models": models("a") | {"bad": bad}})
    router.ask("a")
    reply = router.ask("bad")
    assert reply.status == 503
    assert "ended with code 3" in reply.json["error"]["message"]
    assert int(reply.header("retry-after")) >= 1
    eventually(lambda: router.model_stats("a")["state"] == "ready")
    stats = router.model_stats("a")
    assert (stats["num_loads"], stats["num_requests"]) == (2, 1)  # nobody had to ask for it
    started = time.monotonic()
    assert router.ask("bad").status == 503  # while it pauses, at once and for nothing
    assert time.monotonic() - started < 1.0
    assert router.model_stats("a")["num_unloads"] == 1


def test_a_program_that_does_not_exist_is_a_503(roomy):
    assert "cannot start /nonexistent" in roomy.ask("missing").json["error"]["message"]


# The line


def test_the_line_is_bounded_and_says_when_to_come_again(roomy, pool):
    waiting = [pool.submit(roomy.ask, "never", stream=i > 0) for i in range(3)]
    eventually(lambda: roomy.stats()["num_waiting"] == 3)
    reply = roomy.ask("never")
    assert (reply.status, reply.json["error"]["code"]) == (429, "rate_limit_exceeded")
    assert int(reply.header("retry-after")) >= 1
    first, *streams = [future.result() for future in waiting]
    assert first.status == 503
    assert "was not loaded within 3 s" in first.json["error"]["message"]
    assert int(first.header("retry-after")) >= 1
    for stream in streams:  # their status was sent with the first comment
        [event] = events_of(stream.body)
        assert "was not loaded within 3 s" in event["error"]["message"]
    assert roomy.stats()["num_waiting"] == 0
    # The process did not get ready in time either, and does not listen to SIGTERM.
    eventually(lambda: "not ready after 5 s" in roomy.model_stats("never")["failure"], timeout=20)
    assert roomy.model_stats("never")["num_failed_loads"] == 1


def test_a_stream_that_waits_gets_comments_and_then_its_answer(roomy):
    reply = roomy.ask("slow", stream=True)
    comment, *_ = reply.body.split(b"data: ")
    assert comment.count(b": keep-alive\n\n") >= 2
    assert comment.replace(b": keep-alive\n\n", b"") == b""
    assert is_whole(reply.body, 3)


def test_a_refusal_after_comments_is_an_event(roomy):
    refusal = {"error": {"message": "bad", "type": "invalid_request_error", "code": None}}
    reply = roomy.ask("slow-too", stream=True, status=400, body=refusal)
    assert reply.status == 200
    assert events_of(reply.body) == [refusal]


# Processes


def test_a_process_that_ends_by_itself_is_started_again(router):
    first = router.ask("a").json["pid"]
    os.kill(first, signal.SIGKILL)
    eventually(lambda: router.model_stats("a")["num_crashes"] == 1)
    reply = eventually(lambda: (r := router.ask("a")).status == 200 and r)
    assert reply.json["pid"] != first


def test_a_request_that_finds_a_process_about_to_end_gets_the_next_one(router):
    """It listens no more but has not ended: nothing was sent, so the request waits for another."""
    before = router.model_stats("a")["num_crashes"]
    first = router.ask("a", retire_ms=500)
    second = router.ask("a")
    assert (first.status, second.status) == (200, 200)
    assert first.json["pid"] != second.json["pid"]
    assert router.model_stats("a")["num_crashes"] == before + 1


def test_what_a_process_leaves_behind_is_ended(router):
    server = router.ask("messy").json["pid"]
    [helper] = map(int, Path(f"/proc/{server}/task/{server}/children").read_text().split())
    os.kill(server, signal.SIGKILL)
    eventually(lambda: not is_running(helper))


def test_sigterm_lets_streams_end_and_leaves_no_process(start_router, pool):
    router = start_router({"models": models("a", "b")})
    router.ask("b")
    stream = pool.submit(router.ask, "a", stream=True, n=20, delay_ms=30)
    eventually(lambda: router.model_stats("a")["num_running"] == 1)
    children = router.children()
    assert len(children) == 2
    router.signal(signal.SIGTERM)
    eventually(lambda: router.get("/health").status == 503)
    assert router.ask("b").status == 503
    assert is_whole(stream.result().body, 20)
    assert router.wait_exit(20) == 0
    assert still_running(children) == []
    assert "Traceback" not in router.stderr


def test_no_process_outlives_a_router_that_is_killed(start_router):
    stubborn = {"command": scripted("b", "--stubborn")}
    router = start_router({"models": models("a") | {"b": stubborn}})
    children = [router.ask(name).json["pid"] for name in "ab"]
    assert all(map(is_running, children))
    router.signal(signal.SIGKILL)
    router.wait_exit(20)
    eventually(lambda: still_running(children) == [])


def test_a_stubborn_process_is_killed_before_the_next_one_loads(start_router):
    stubborn = {"command": scripted("a", "--stubborn")}
    router = start_router(ONE | {"stop_timeout": 0.2, "models": models("b") | {"a": stubborn}})
    pid = router.ask("a").json["pid"]
    assert router.ask("b").status == 200
    assert not is_running(pid)


# Health by progress


def test_a_server_that_sends_something_is_asked_nothing(roomy):
    reply = roomy.ask("sick", stream=True, n=30, delay_ms=30, sick=True)
    assert is_whole(reply.body, 30)  # it would say that it is sick, but it makes progress
    assert roomy.model_stats("sick")["num_crashes"] == 0


def test_a_process_that_hangs_is_ended_and_started_again(roomy):
    first = roomy.ask("hung").json["pid"]
    assert roomy.ask("hung", hang=True, sick=True).status == 502
    reply = eventually(lambda: (r := roomy.ask("hung")).status == 200 and r, timeout=20)
    assert reply.json["pid"] != first
    assert roomy.model_stats("hung")["num_crashes"] == 1


def test_a_process_that_computes_long_in_silence_is_left_alone(roomy):
    with roomy.connect() as connection:
        connection.send("POST", CHAT, {"model": "silent", "hang": True})
        eventually(lambda: roomy.model_stats("silent")["num_running"] == 1)
        pause(1.0)  # five times as long as it takes until it is asked
        assert roomy.model_stats("silent")["servers"][0]["is_available"]
    assert roomy.model_stats("silent")["num_crashes"] == 0
