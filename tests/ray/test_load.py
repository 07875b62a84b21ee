"""Load: what clients see when replicas are full, and when clients misbehave."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from compat_tests.support import sse
from compat_tests.support.api import check_error
from compat_tests.support.http import Clock, Connection, encode
from compat_tests.support.waiting import eventually, pause
from tests.ray.fleet import CAPACITY, CHAT, MAX_NUM_SEQS, MAX_QUEUED, PATIENCE, chat, results

pytestmark = pytest.mark.ray

LIMIT = 10**6
"""Bytes of a body, as the cluster's proxy has it."""


@pytest.fixture(autouse=True)
def _ready(fleet):
    fleet.ready()
    yield
    fleet.wait_idle()


def test_a_conversation_stays_on_one_replica_and_spills_when_that_is_full(fleet, matrix):
    used = set()
    for number in range(6):
        own = {fleet.ask(turns(f"story {number}", n)).header("x-replica") for n in range(4)}
        assert len(own) == 1
        used |= own
    assert len(used) == 2
    clock = Clock()
    with fleet.streaming(CAPACITY + 4, 30, "hot") as futures:
        streams = results(futures)
    assert all(stream.is_whole for stream in streams)
    counts = Counter(stream.replica for stream in streams)
    assert len(counts) == 2
    most, rest = sorted(counts.values(), reverse=True)
    matrix.add(
        f"{CAPACITY + 4} requests of one conversation at once; a replica holds {CAPACITY}",
        f"{most} on its own replica, {rest} on the other, all whole; 4 turns of each of 6 "
        "conversations on one replica",
        until_all_have_ended=clock.seconds,
    )


def turns(first: str, number: int) -> dict:
    """A conversation after so many more turns."""
    more = [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Go on."}]
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": first}]
    return {"messages": messages + more * number, "max_tokens": 2, "ignore_eos": True}


def test_a_burst_is_refused_as_openai_refuses(fleet, matrix):
    number = 2 * CAPACITY + MAX_QUEUED + 24
    clock = Clock()
    with ThreadPoolExecutor(number) as pool:
        replies = list(pool.map(lambda _: fleet.ask(chat(20)), range(number)))
    seconds = clock.seconds
    counts = Counter(reply.status for reply in replies)
    assert set(counts) == {200, 429}
    for reply in replies:
        if reply.status == 429:
            error = check_error(reply)
            assert (error["type"], error["code"]) == ("requests", "rate_limit_exceeded")
            assert int(reply.header("retry-after")) >= 1
            assert reply.header("x-should-retry") == "true"
    matrix.add(
        f"a burst of {number} requests; two replicas hold {2 * CAPACITY}, {MAX_QUEUED} may wait",
        f"{counts[200]} answered, {counts[429]} refused: 429 of OpenAI's shape with Retry-After",
        until_all_are_answered=seconds,
    )


def test_many_choices_wait_for_a_full_fleet(fleet, matrix):
    with fleet.full(40):
        clock = Clock()
        reply = fleet.ask(chat(5, n=MAX_NUM_SEQS))
        seconds = clock.seconds
    assert reply.status == 200
    assert len(reply.json["choices"]) == MAX_NUM_SEQS
    matrix.add(
        f"n={MAX_NUM_SEQS} while all replicas are full",
        f"200 with {MAX_NUM_SEQS} choices",
        until_it_is_answered=seconds,
    )


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_over_the_limit_is_refused_by_the_proxy(fleet, matrix, is_chunked):
    body = encode(chat(2, "x" * LIMIT))
    with Connection("127.0.0.1", fleet.port, timeout=PATIENCE) as connection:
        if is_chunked:
            pieces = [body[at : at + 50_000] for at in range(0, len(body), 50_000)]
            data = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
            head = {"transfer-encoding": "chunked", "content-type": "application/json"}
            connection.send("POST", CHAT, None, head)
            with contextlib.suppress(ConnectionError):  # it may stop reading
                connection.send_bytes(data + b"0\r\n\r\n")
            reply = connection.read_reply()
        else:
            reply = connection.request("POST", CHAT, body)
        assert reply.status == 413
        assert check_error(reply)["code"] == "request_too_large"
    assert sum(fleet.busy()) == 0
    if is_chunked:
        matrix.add("a body over the limit, with its length or chunked", "413 of OpenAI's shape")


def test_a_client_that_stops_reading_delays_nobody(fleet, matrix):
    clock = Clock()
    with Connection("127.0.0.1", fleet.port, receive_buffer=4096, timeout=PATIENCE) as connection:
        body = chat(400, stream=True, logprobs=True, top_logprobs=20)
        connection.send("POST", CHAT, body)
        eventually(lambda: sum(fleet.busy()) == 1, timeout=PATIENCE)
        assert [fleet.ask(chat(5)).status for _ in range(4)] == [200] * 4
        fleet.wait_idle()
        seconds = clock.seconds
        kept = connection.read_reply().body
    logprobs = [chunk["choices"][0]["logprobs"] for chunk in sse.payloads(kept)]
    assert sum(len(one["content"]) for one in logprobs if one) == 400
    matrix.add(
        "a client that does not read its stream of 400 tokens",
        f"others are answered; the request ends on its replica; the proxy keeps {len(kept)} bytes, "
        "which the client gets when it reads",
        until_the_replica_is_idle=seconds,
    )


def test_a_storm_of_cancellations_leaves_nothing_running(fleet, matrix):
    number = 48
    moments = random.Random(7)

    def come_and_go(seconds: float) -> None:
        with Connection("127.0.0.1", fleet.port) as connection:
            connection.send("POST", CHAT, chat(1500, stream=seconds > 0.5))
            pause(seconds)

    most = 0
    with ThreadPoolExecutor(number) as pool:
        left = [pool.submit(come_and_go, moments.uniform(0.0, 2.0)) for _ in range(number)]
        while not all(future.done() for future in left):
            most = max(most, sum(fleet.busy()))
    seconds = fleet.wait_idle()
    assert most > 0
    assert fleet.ask(chat(3)).status == 200
    matrix.add(
        f"{number} clients that leave within two seconds",
        f"{most} requests were in the engines at once; 0 are left, running or waiting",
        until_all_replicas_are_idle=seconds,
    )


def test_the_proxy_is_healthy_while_replicas_are_full(fleet, matrix):
    with fleet.full(60):
        clock = Clock()
        assert fleet.ask(method="GET", path="/-/healthz").status == 200
        healthy = clock.seconds
        assert fleet.ask(method="GET", path="/stats").status == 200
        stats = clock.seconds - healthy
    assert healthy < stats
    matrix.add(
        "probes while all replicas are full",
        "`/-/healthz` answers, `/stats` waits for its turn",
        until_healthz_answers=healthy,
        until_stats_answers=stats,
    )
