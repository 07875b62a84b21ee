"""The failure matrix: what a lost, replaced or failing replica costs clients."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import openai
import pytest

from compat_tests.support import sse
from compat_tests.support.http import Clock
from compat_tests.support.waiting import eventually
from tests.ray.fleet import PATIENCE, chat, outcome, results

pytestmark = pytest.mark.ray

LONG = 250
"""Tokens of a stream that outlasts what happens to its replica: five seconds and more."""


def check_lost(streams, since: float) -> float:
    """Streams of a lost replica end with an error event; the longest time until then."""
    for stream in streams:
        assert stream.error is not None, (stream.status, stream.is_cut, stream.body[-300:])
        assert stream.error["type"] == "server_error"
    return max(stream.ended for stream in streams) - since


def test_a_killed_replica_loses_its_own_streams_only(fleet, matrix):
    fleet.ready()
    with fleet.probing() as probes:
        with fleet.both_streaming(6, LONG) as futures:
            victim = fleet.streams[0].replica
            killed = time.monotonic()
            os.kill(victim, signal.SIGKILL)
            streams = results(futures)
        lost = [stream for stream in streams if stream.replica == victim]
        fleet.wait_replicas(2)
        replaced = time.monotonic() - killed
    seconds = check_lost(lost, killed)
    assert not any(sse.DONE in stream.body for stream in lost)
    assert all(stream.is_whole for stream in streams if stream.replica != victim)
    assert set(probes.since(killed)) == {200}
    matrix.add(
        "SIGKILL of one of two replicas in mid-stream",
        f"{len(lost)} of 6 streams were on it: {outcome(lost)}; the others: "
        f"{outcome([s for s in streams if s not in lost])}; {probes.since(killed)[200]} new "
        "requests: all 200",
        until_the_error_event=seconds,
        until_two_replicas_serve=replaced,
    )


def test_after_all_replicas_are_killed_new_ones_serve(fleet, matrix):
    fleet.ready()
    with fleet.both_streaming(6, LONG) as futures:
        killed = time.monotonic()
        for victim in {stream.replica for stream in fleet.streams}:
            os.kill(victim, signal.SIGKILL)
        streams = results(futures)
    seconds = check_lost(streams, killed)
    with fleet.probing() as probes:
        eventually(lambda: probes.since(killed)[200] > 0, timeout=PATIENCE)
        served = time.monotonic() - killed
        fleet.wait_replicas(2)
    statuses = probes.since(killed)
    assert set(statuses) <= {200, 429, 503}
    matrix.add(
        "SIGKILL of all replicas",
        f"streams: {outcome(streams)}; new requests wait for a replica: {dict(statuses)}",
        until_the_error_event=seconds,
        until_a_request_is_answered=served,
    )


@pytest.mark.parametrize("grace", [60, 1])
def test_replicas_are_replaced_after_their_streams_or_the_grace_period(fleet, matrix, grace):
    fleet.ready(drain_timeout=grace)
    with fleet.probing() as probes, fleet.both_streaming(4, LONG) as futures:
        began = time.monotonic()
        fleet.deploy(drain_timeout=grace)
        streams = results(futures)
        fleet.wait_replicas(2)
        replaced = time.monotonic() - began
    statuses = probes.since(began)
    assert set(statuses) == {200}
    if grace == 60:
        assert all(stream.is_whole for stream in streams)
        name = "redeployment, grace period longer than the streams"
    else:
        lost = [stream for stream in streams if not stream.is_whole]
        assert lost
        check_lost(lost, began)
        name = "redeployment, grace period (1 s) shorter than the streams"
    seen = f"streams: {outcome(streams)}; {statuses[200]} new requests: all 200"
    matrix.add(name, seen, until_all_are_replaced=replaced)


def test_a_replica_whose_engine_dies_is_replaced(fleet, matrix):
    fleet.ready()
    with fleet.probing() as probes:
        with fleet.both_streaming(6, LONG) as futures:
            victim = fleet.streams[0].replica
            failed = time.monotonic()
            (fleet.folder / f"sick.{victim}").touch()
            streams = results(futures)
        eventually(lambda: not Path(f"/proc/{victim}").exists(), timeout=PATIENCE)
        gone = time.monotonic()
        fleet.wait_replicas(2)
        replaced = time.monotonic() - failed
    lost = [stream for stream in streams if stream.replica == victim]
    seconds = check_lost(lost, failed)
    assert all(stream.is_whole for stream in streams if stream.replica != victim)
    assert set(probes.since(failed)) <= {200, 503}
    assert set(probes.since(gone)) == {200}
    matrix.add(
        "the engine of a replica dies",
        f"streams there: {outcome(lost)}; the others: "
        f"{outcome([s for s in streams if s not in lost])}; new requests: "
        f"{dict(probes.since(failed))}, after its end all 200",
        until_the_error_event=seconds,
        until_it_is_ended=gone - failed,
        until_two_replicas_serve=replaced,
    )


SAME = {
    "model": "roseinfer-tiny",
    "messages": [{"role": "user", "content": "One conversation is on one replica."}],
    "max_tokens": LONG,
    "extra_body": {"ignore_eos": True},
}


def test_what_the_sdk_raises_when_a_replica_is_killed(fleet, matrix):
    fleet.ready()
    client = openai.OpenAI(
        base_url=f"{fleet.cluster.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE
    )
    raised: list[openai.OpenAIError] = []

    def whole() -> None:
        try:
            client.chat.completions.create(**SAME)
        except openai.OpenAIError as error:
            raised.append(error)

    raw = client.chat.completions.with_raw_response.create(stream=True, **SAME)
    thread = threading.Thread(target=whole)
    thread.start()
    eventually(lambda: max(fleet.busy()) == 2, timeout=PATIENCE)
    os.kill(int(raw.headers["x-replica"]), signal.SIGKILL)
    with pytest.raises(openai.APIError, match="replica") as in_stream:
        list(raw.parse())
    thread.join(PATIENCE)
    [error] = raised
    assert isinstance(error, openai.InternalServerError)
    assert error.response.headers["x-should-retry"] == "true"
    matrix.add(
        "SIGKILL, seen by the openai SDK without its retries",
        f"a stream raises {type(in_stream.value).__name__}; a whole answer raises "
        f"{type(error).__name__} ({error.status_code}), which the SDK repeats by default",
    )
    client.close()


SCALING = {
    "min_replicas": 1,
    "max_replicas": 2,
    "target_ongoing_requests": 2,
    "upscale_delay_s": 1,
    "downscale_delay_s": 3,
    "metrics_interval_s": 0.5,
    "look_back_period_s": 2,
}


def test_a_replica_that_is_scaled_down_ends_its_stream_first(fleet, matrix):
    fleet.deploy({"autoscaling_config": SCALING}, replicas=None, max_replicas=2)
    fleet.wait_replicas(1)
    clock = Clock()
    with fleet.streaming(6, 3 * LONG) as first:
        fleet.wait_replicas(2)
        up = clock.seconds
        with fleet.both_streaming(2, 5 * LONG) as second:
            assert len({stream.replica for stream in fleet.streams}) == 2
            streams = results(first)
            stopping = {"RUNNING": 1, "STOPPING": 1}
            eventually(lambda: fleet.replica_states() == stopping, timeout=PATIENCE, interval=0.2)
            told = time.monotonic()
            long_streams = results(second)
    assert min(stream.ended for stream in long_streams) > told
    streams += long_streams
    fleet.wait_replicas(1)
    assert all(stream.is_whole for stream in streams)
    matrix.add(
        "autoscaling from 1 to 2 replicas, and back to 1 while both stream",
        f"streams: {outcome(streams)}",
        until_the_second_serves=up,
    )


def test_a_replica_has_as_many_threads_as_cpus(fleet):
    """The machine's cores would be the default."""
    assert fleet.ready().ask(chat(3)).header("x-threads") == "1"
