"""C-127 to C-138: load, life cycle, and fields without effect."""

import contextlib
import json
import socket
import struct
import subprocess
import sys

import openai
import pytest

from compat_tests.support import sse
from compat_tests.support.api import (
    CHAT,
    COMPLETIONS,
    Api,
    Json,
    chat_text_of,
    in_threads,
    user,
)
from compat_tests.support.http import Clock, ConnectionEnded, encode
from compat_tests.support.process import ROOT, ServerProcess
from compat_tests.support.waiting import eventually

STORY = "Tell me a story."
ENDLESS = {"max_tokens": 1500, "ignore_eos": True}

FEWEST = 800
"""Fewer tokens than any of the abandoned answers would have had."""


class Baseline:
    """The engine's counters when nothing runs, to be returned to."""

    def __init__(self, api: Api) -> None:
        self._api = api
        api.wait_idle()
        self.before = api.server.stats()

    def is_back(self) -> bool:
        now = self._api.server.stats()
        return (
            now["num_running"] == 0
            and now["num_waiting"] == 0
            and now["num_free_blocks"] == self.before["num_free_blocks"]
        )

    def check_back(self) -> None:
        """All blocks are free, and no answer was generated to its end."""
        eventually(self.is_back, what="freeing of all blocks")
        after = self._api.server.stats()["num_output_tokens"]
        assert after - self.before["num_output_tokens"] < FEWEST


def wait_running(api: Api, num: int = 1) -> None:
    eventually(lambda: api.server.stats()["num_running"] >= num, what=f"{num} running")


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("n", [1, 3])
def test_c127_close_in_mid_stream(api: Api, path: str, n: int) -> None:
    base = Baseline(api)
    make = api.chat_body if path == CHAT else api.completion_body
    body = make(STORY, stream=True, n=n, temperature=1, **(ENDLESS | {"max_tokens": 1000}))
    with api.open(path, body) as (_, reply):
        assert reply.status == 200
        events = sse.iter_events(reply.pieces())
        for _ in range(6):
            next(events)
        wait_running(api, n)
        assert api.server.stats()["num_free_blocks"] < base.before["num_free_blocks"]
    base.check_back()


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("n", [1, 3])
def test_c127_close_before_a_whole_answer(api: Api, path: str, n: int) -> None:
    base = Baseline(api)
    make = api.chat_body if path == CHAT else api.completion_body
    with api.server.connect() as connection:
        connection.send("POST", path, make(STORY, n=n, **(ENDLESS | {"max_tokens": 1000})))
        wait_running(api, n)
    base.check_back()


def test_c127_close_of_several_prompts(api: Api) -> None:
    base = Baseline(api)
    body = api.completion_body(["a", "b", "c"], n=2, **ENDLESS)
    with api.server.connect() as connection:
        connection.send("POST", COMPLETIONS, body)
        wait_running(api, 6)
    base.check_back()


def test_c127_close_of_generate(api: Api) -> None:
    for stream in (True, False):
        base = Baseline(api)
        body = {"prompt": STORY, "max_new_tokens": 1500, "stop_on_eos": False, "stream": stream}
        with api.server.connect() as connection:
            connection.send("POST", "/generate", body)
            wait_running(api)
        base.check_back()


def test_c127_close_while_queued(narrow: Api) -> None:
    base = Baseline(narrow)
    body = narrow.chat_body(stream=True, max_tokens=900, ignore_eos=True)
    server = narrow.server
    with server.connect() as running, server.connect() as waiting:
        running.send("POST", CHAT, body)
        eventually(lambda: server.stats()["num_running"] == 1)
        waiting.send("POST", CHAT, body)
        eventually(lambda: server.stats()["num_waiting"] == 1)
        waiting.close()
        eventually(lambda: server.stats()["num_waiting"] == 0)
        assert server.stats()["num_running"] == 1
    base.check_back()


def test_c127_close_in_the_middle_of_the_prompt(api: Api) -> None:
    """The prompt takes several steps; the client goes after the first."""
    base = Baseline(api)
    window = api.server.max_model_len
    for _ in range(3):
        with api.server.connect() as connection:
            prompt = [77] * (window - 20)
            connection.send("POST", COMPLETIONS, api.completion_body(prompt, max_tokens=10))
            eventually(
                lambda: api.server.stats()["num_running"] > 0 or api.is_idle(), interval=0.001
            )
        eventually(base.is_back)


def test_c127_close_with_a_reset(api: Api) -> None:
    """An abrupt end, with unread bytes in flight."""
    base = Baseline(api)
    with api.open(CHAT, api.chat_body(STORY, stream=True, **ENDLESS)) as (connection, reply):
        next(iter(reply.pieces()))
        linger = struct.pack("ii", 1, 0)
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    base.check_back()


def test_c127_a_storm_of_leavers(api: Api) -> None:
    base = Baseline(api)

    def leave(number: int) -> None:
        stream = number % 2 == 0
        body = api.chat_body(STORY, stream=stream, **ENDLESS)
        with api.server.connect() as connection:
            connection.send("POST", CHAT, body)
            if stream:
                pieces = connection.read_reply().pieces()
                for _ in range(number % 7):
                    next(pieces)

    in_threads(leave, range(48), width=16)
    base.check_back()


def test_c127_closing_one_leaves_the_others_alone(api: Api) -> None:
    expected = api.chat_text(STORY, max_tokens=120, ignore_eos=True)
    body = api.chat_body(STORY, stream=True, max_tokens=120, ignore_eos=True)
    with api.open(CHAT, body) as (_, reply):
        events = sse.iter_events(reply.pieces())
        seen = [next(events)]
        with api.open(CHAT, api.chat_body("Hello!", stream=True, **ENDLESS)) as (_, other):
            next(iter(other.pieces()))
        seen += events
    chunks = [json.loads(event[6:]) for event in seen if event != sse.DONE]
    assert chat_text_of(chunks) == expected


def test_half_close_is_served_or_freed(api: Api) -> None:
    """6.9 wishes for an answer; uvicorn takes a half-close for a close, and then nothing leaks."""
    base = Baseline(api)
    with api.server.connect() as connection:
        connection.send("POST", CHAT, api.chat_body(STORY, **ENDLESS))
        wait_running(api)
        connection.socket.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionEnded, ConnectionError):
            assert connection.read_reply().status == 200
            return
    base.check_back()


def test_a_pipelined_request_ends_the_connection_after_the_first_answer(api: Api) -> None:
    with api.server.connect() as connection:
        connection.send("POST", CHAT, api.chat_body(max_tokens=30, ignore_eos=True))
        connection.send("GET", "/health")
        first = connection.read_reply()
        assert first.status == 200
        assert first.header("connection") == "close"
        assert first.json["usage"]["completion_tokens"] == 30
        assert connection.is_closed_by_peer()


def test_a_client_that_leaves_behind_a_pipelined_request_is_noticed(api: Api) -> None:
    base = Baseline(api)
    with api.server.connect() as connection:
        connection.send("POST", CHAT, api.chat_body(STORY, n=4, **ENDLESS))
        connection.send("POST", CHAT, api.chat_body("x" * 1000))
        wait_running(api, 4)
    base.check_back()


def test_c129_a_client_that_reads_nothing_slows_nobody(api: Api) -> None:
    def timed() -> tuple[str, float]:
        clock = Clock()
        return api.chat_text(STORY, max_tokens=60, ignore_eos=True), clock.seconds

    text, alone = timed()
    body = api.chat_body(STORY, stream=True, n=4, **(ENDLESS | {"max_tokens": 1200}))
    base = Baseline(api)
    with api.server.connect(receive_buffer=4096) as stalled:
        stalled.send("POST", CHAT, body)
        wait_running(api, 4)
        for _ in range(3):
            again, beside = timed()
            assert again == text
        assert beside < alone * 8 + 10
        assert api.server.health() == (200, "ok")
    eventually(base.is_back)


@pytest.mark.slow
def test_c130_a_thousand_requests_on_one_connection(api: Api) -> None:
    good = encode(api.completion_body("a", max_tokens=1))
    with api.server.connect() as connection:
        for number in range(1000):
            if number % 10 == 3:
                reply = connection.request("POST", CHAT, b"{")
                assert reply.status == 400
            elif number % 10 == 7:
                reply = connection.request("GET", "/nowhere")
                assert reply.status == 404
            else:
                reply = connection.request("POST", COMPLETIONS, good)
                assert reply.status == 200
            assert reply.json


def test_c131_chunked_request_body(api: Api) -> None:
    body = encode(api.chat_body("Hello! 🦊", max_tokens=4))
    with api.server.connect() as connection:
        connection.send("POST", CHAT, b"", {"content-length": None, "transfer-encoding": "chunked"})
        for start in range(0, len(body), 7):
            piece = body[start : start + 7]
            connection.send_bytes(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        connection.send_bytes(b"0\r\n\r\n")
        reply = connection.read_reply()
        assert reply.status == 200, reply.text
        expected = api.chat("Hello! 🦊", max_tokens=4)
        assert reply.json["choices"] == expected["choices"]


def test_c131_expect_100_continue(api: Api) -> None:
    body = encode(api.chat_body("x" * 1500, max_tokens=2))
    with api.server.connect() as connection:
        headers = {"expect": "100-continue", "content-length": str(len(body))}
        connection.send("POST", CHAT, b"", headers)
        interim = connection.read_reply()
        assert interim.status == 100
        connection.send_bytes(body)
        reply = connection.read_reply()
        assert reply.status == 200
        assert reply.json["choices"]


def test_c131_a_body_byte_by_byte(api: Api) -> None:
    body = encode(api.completion_body("é", max_tokens=1))
    with api.server.connect() as connection:
        connection.send("POST", COMPLETIONS, b"", {"content-length": str(len(body))})
        for byte in body:
            connection.send_bytes(bytes([byte]))
        assert connection.read_reply().json["choices"]


QUESTIONS = [
    ("The sky is", [" blue.", " a fish.", " seven.", " running quickly."]),
    ("1, 2, 3, 4,", [" 5", " 9", " cat", " 1"]),
    ("Once upon a time there was a", [" little fox.", " 17.", "}}}", " of of."]),
    ("The capital of France is", [" Paris.", " blue.", " London.", " 4."]),
    ("A dog is an", [" animal.", " number.", " 8.", " the."]),
]


def loglikelihoods(api: Api, requests: list[tuple[list[int], list[int]]]) -> list[Json]:
    """As lm-evaluation-harness's local-completions asks and slices."""
    body = {
        "model": api.server.model,
        "prompt": [context + continuation for context, continuation in requests],
        "temperature": 0,
        "max_tokens": 1,
        "logprobs": 1,
        "seed": 1234,
        "echo": True,
    }
    choices = sorted(api.ok(COMPLETIONS, body)["choices"], key=lambda choice: choice["index"])
    results = []
    for (context, _), choice in zip(requests, choices, strict=True):
        start = len(context)
        values = choice["logprobs"]["token_logprobs"][start:-1]
        tops = choice["logprobs"]["top_logprobs"][start:-1]
        results.append(
            {
                "sum": sum(values),
                "greedy": all(
                    value == max(top.values()) for value, top in zip(values, tops, strict=True)
                ),
            }
        )
    return results


def test_c135_multiple_choice_equals_transformers_own_forward(api: Api, tokenizer) -> None:
    def encode_text(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    requests = [
        (encode_text(question), encode_text(answer))
        for question, answers in QUESTIONS
        for answer in answers
    ]
    scored = loglikelihoods(api, requests)
    reference = subprocess.run(
        [sys.executable, "-m", "compat_tests.support.reference"],
        cwd=ROOT,
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    expected = json.loads(reference.stdout)
    for mine, other in zip(scored, expected, strict=True):
        assert mine["sum"] == pytest.approx(other["sum"], abs=1e-3)
        assert mine["greedy"] == other["greedy"]

    def best(results: list[Json]) -> list[int]:
        rows = [results[start : start + 4] for start in range(0, len(results), 4)]
        return [max(range(4), key=lambda i: row[i]["sum"]) for row in rows]

    assert best(scored) == best(expected)


WITHOUT_EFFECT: list[Json] = [
    {"store": True},
    {"store": False},
    {"metadata": {"a": "b"}},
    {"metadata": {"a" * 65: {"b": [1, None]}}},
    {"user": "someone"},
    {"safety_identifier": "x"},
    {"prompt_cache_key": "x"},
    {"prompt_cache_retention": "24h"},
    {"service_tier": "auto"},
    {"service_tier": "default"},
    {"verbosity": "low"},
    {"prediction": {"type": "content", "content": "Hello there"}},
    {"modalities": ["text"]},
    {"cache_prompt": True},
    {"spaces_between_special_tokens": True},
    {"cache_salt": "tenant-1"},
]


@pytest.mark.parametrize("fields", WITHOUT_EFFECT, ids=lambda fields: next(iter(fields)))
def test_c136_accepted_without_effect(api: Api, fields: Json) -> None:
    plain = api.chat(max_tokens=12)
    body = api.chat(max_tokens=12, **fields)
    assert body["choices"] == plain["choices"]
    assert body.get("service_tier") in {None, "default"}


@pytest.mark.parametrize(
    "fields",
    [
        {"modalities": ["text", "audio"]},
        {"modalities": ["audio"]},
        {"audio": {"voice": "alloy", "format": "wav"}},
        {"web_search_options": {}},
        {"web_search_options": {"search_context_size": "low"}},
    ],
)
def test_c137_refused_by_name(api: Api, fields: Json) -> None:
    (name,) = fields
    assert api.refused_chat(name, **fields)["param"].startswith(name)


def test_c138_cached_tokens(api: Api) -> None:
    prompt = "The quick brown fox jumps over the lazy dog number %d. " * 8 % tuple(range(8))
    first = api.chat(prompt, max_tokens=2, cache_salt="c138")["usage"]
    second = api.chat(prompt, max_tokens=2, cache_salt="c138")["usage"]
    for usage in (first, second):
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert 0 <= cached <= usage["prompt_tokens"]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["prompt_tokens_details"]["cached_tokens"] > second["prompt_tokens"] / 2


def test_c138_salts_do_not_share(api: Api) -> None:
    prompt = "A prompt that two tenants have in common, word for word. " * 6
    api.chat(prompt, max_tokens=2, cache_salt="tenant-1")
    usage = api.chat(prompt, max_tokens=2, cache_salt="tenant-2")["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0


def test_c138_streamed_and_with_n(api: Api) -> None:
    prompt = "Another long prompt that is sent several times over. " * 8
    api.chat(prompt, max_tokens=1)
    chunks = api.stream_chat(prompt, max_tokens=2, n=3, stream_options={"include_usage": True})
    usage = chunks[-1]["usage"]
    assert 0 < usage["prompt_tokens_details"]["cached_tokens"] <= usage["prompt_tokens"]


def test_the_sdk_does_not_repeat_what_cannot_succeed(server: ServerProcess) -> None:
    """The default client retries twice; a refusal must cost one request."""
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused") as client,
        pytest.raises(openai.BadRequestError) as refused,
    ):
        client.chat.completions.create(model=server.model, messages=user("x"), temperature=9)
    assert refused.value.response.request.headers["x-stainless-retry-count"] == "0"
