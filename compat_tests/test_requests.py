"""Records of requests: what GET /requests and the access log say of real ones."""

import json
import re
from typing import Any

import openai
import pytest

from compat_tests.support import sse
from compat_tests.support.api import CHAT, Api, Json, user
from compat_tests.support.faults import FAIL_AT_ONCE, FAIL_MIDWAY
from compat_tests.support.waiting import eventually

LONG = "Once upon a time there was a fox. " * 100


def record_of(api: Api, name: str, *, authorization: str | None = None) -> Json:
    """The record of a request that has ended."""
    headers = {**api.headers, "authorization": authorization or api.headers.get("authorization")}

    def ended() -> Json | None:
        reply = api.server.get(f"/requests/{name}", headers)
        assert reply.status == 200, reply.text
        return reply.json if reply.json["state"] == "ended" else None

    return eventually(ended, what="the end of a request")


def check_attributed(record: Json) -> None:
    """At least 95 % of the time has its place."""
    times = dict(record["times_ms"])
    other = times.pop("other")
    assert sum(times.values()) >= 0.95 * record["duration_ms"], record
    assert sum(times.values()) + other == pytest.approx(record["duration_ms"], abs=0.01)


def test_a_stream_of_the_sdk_has_its_record(api: Api, sdk: openai.OpenAI) -> None:
    options: Any = {"stream_options": {"include_usage": True}, "temperature": 0.5, "max_tokens": 7}
    answer = sdk.chat.completions.with_raw_response.create(
        model=api.server.model, messages=user("Hello!"), stream=True, **options
    )
    chunks = list(answer.parse())
    usage = chunks[-1].usage
    record = record_of(api, chunks[0].id)
    assert record == record_of(api, answer.headers["x-request-id"])
    assert (record["status"], record["route"], record["stream"]) == (200, CHAT, True)
    assert record["model"] == api.server.model
    assert record["prompt_tokens"] == usage.prompt_tokens
    assert record["cached_tokens"] == usage.prompt_tokens_details.cached_tokens
    assert record["completion_tokens"] == usage.completion_tokens
    assert record["finish_reasons"] == [chunks[-2].choices[0].finish_reason]
    assert record["num_steps"] >= usage.completion_tokens
    assert 1 <= record["mean_batch"] <= record["max_batch"]
    assert 0 < record["ttft_ms"] <= record["duration_ms"]
    assert (record["parameters"]["temperature"], record["parameters"]["max_tokens"]) == (0.5, 7)
    check_attributed(record)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"max_tokens": 40}, 200),
        ({"max_tokens": 40, "stream": True}, 200),
        ({"max_tokens": 20, "n": 4, "temperature": 1}, 200),
        ({"messages": user(LONG), "max_tokens": 2, "cache_salt": "its-own"}, 200),
        ({"messages": user("x"), "temperature": -1}, 400),
        ({"messages": user("y " * 10_000)}, 400),
    ],
)
def test_the_time_of_every_kind_is_attributed(api: Api, fields: Json, status: int) -> None:
    reply = api.post(CHAT, api.chat_body() | fields)
    record = record_of(api, reply.header("x-request-id") or "")
    assert reply.status == record["status"] == status
    check_attributed(record)
    assert (record["num_steps"] > 0) == (status == 200)
    if "n" in fields:
        assert record["finish_reasons"] == ["length"] * 4 or "stop" in record["finish_reasons"]
    if fields.get("cache_salt"):
        assert record["cache_miss"] == {"reason": "never_seen", "first_differing_block": 0}
        assert record["times_ms"]["prefill"] > 0.2 * record["duration_ms"]


def test_a_client_that_leaves(api: Api) -> None:
    body = api.chat_body("Tell me a story.", stream=True, max_tokens=1500, ignore_eos=True)
    with api.open(CHAT, body) as (_, reply):
        events = sse.iter_events(reply.pieces())
        for _ in range(6):
            next(events)
        name = reply.header("x-request-id") or ""
        running = api.server.get(f"/requests/{name}").json
        assert running["state"] == "running"
        assert running["completion_tokens"] >= 4
    record = record_of(api, name)
    assert (record["status"], record["ended_by"]) == (499, "client")
    assert 4 <= record["completion_tokens"] < 1500
    assert record["times_ms"]["decode"] > 0
    check_attributed(record)
    line = eventually(
        lambda: re.search(rf"^.* {name} .*$", api.server.stderr, re.MULTILINE), what="a line"
    )[0]
    assert f"POST {CHAT} 499 " in line
    assert f"client left after {record['completion_tokens']} tokens" in line


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("seed", [FAIL_AT_ONCE, FAIL_MIDWAY])
def test_a_request_that_fails(faulty: Api, seed: int, stream: bool) -> None:
    body = faulty.chat_body(seed=seed, max_tokens=20, stream=stream, ignore_eos=True)
    reply = faulty.post(CHAT, body)
    record = record_of(faulty, reply.header("x-request-id") or "")
    assert (record["status"], record["ended_by"]) == (500, "error")
    assert reply.status == (200 if stream and seed == FAIL_MIDWAY else 500)
    assert record["completion_tokens"] == (5 if seed == FAIL_MIDWAY else 0)
    check_attributed(record)


def test_a_prompt_that_is_repeated_comes_from_the_cache(api: Api) -> None:
    body = api.chat_body(LONG + "repeated", max_tokens=1)
    names = [api.post(CHAT, body).header("x-request-id") or "" for _ in range(2)]
    first, second = (record_of(api, name) for name in names)
    assert first["cache_miss"]["reason"] == "never_seen"
    assert second["cache_miss"]["reason"] == "last_block"
    assert second["cached_tokens"] > 0.9 * second["prompt_tokens"]
    block = second["cached_tokens"] // second["cache_miss"]["first_differing_block"]
    assert second["cached_tokens"] == block * second["cache_miss"]["first_differing_block"]


def test_a_key_learns_nothing_of_others(guarded: Api) -> None:
    body = guarded.chat_body("The password is records. " * 20, max_tokens=1)
    names = []
    for key in ("key-one", "key-two"):
        reply = guarded.post(CHAT, body, {"authorization": f"Bearer {key}"})
        names.append(reply.header("x-request-id") or "")
    other = guarded.server.get(f"/requests/{names[1]}", guarded.headers)
    assert other.status == 404
    listed = guarded.server.get("/requests?limit=1000", guarded.headers).json["data"]
    assert names[0] in [record["request_id"] for record in listed]
    assert names[1] not in [record["request_id"] for record in listed]
    record = record_of(guarded, names[1], authorization="Bearer key-two")
    assert record["cache_miss"]["reason"] == "never_seen"
    line = eventually(
        lambda: re.search(rf" {names[1]} .*$", guarded.server.stderr, re.MULTILINE), what="a line"
    )[0]
    assert " miss=other_salt@0 " in line, "the operator may know"


def test_the_log_can_be_json(start_server) -> None:
    server = start_server("--log-format", "json", "--request-log", "1").wait_ready()
    api = Api(server)
    names = [api.post(CHAT, api.chat_body(max_tokens=3)).header("x-request-id") for _ in range(2)]

    def lines() -> list[Json]:
        return [json.loads(line) for line in server.stderr.splitlines()]

    found = eventually(lambda: [one for one in lines() if one.get("request_id") == names[1]])[0]
    assert (found["logger"], found["level"], found["status"]) == ("roseinfer.access", "info", 200)
    assert found["completion_tokens"] == 3
    check_attributed(found)
    assert all({"time", "level", "logger"} <= one.keys() for one in lines())
    assert server.get(f"/requests/{names[0]}").status == 404, "one record is kept"
    assert (
        found.items()
        >= {
            name: value
            for name, value in server.get(f"/requests/{names[1]}").json.items()
            if name not in {"prompt", "text", "error"}
        }.items()
    )
