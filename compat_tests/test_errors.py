"""C-084 to C-102: every way to be refused."""

import contextlib
import json
import re
import threading
from typing import Any

import openai
import pytest

from compat_tests.support.api import (
    CHAT,
    COMPLETIONS,
    LEAK,
    Api,
    Json,
    check_error,
    in_threads,
    user,
)
from compat_tests.support.clients import sdk_options
from compat_tests.support.http import ConnectionEnded, Reply, encode
from compat_tests.support.process import ServerProcess
from compat_tests.support.waiting import eventually

MESSAGES = user("Hello!")


def test_c084_every_error_has_the_object(api: Api) -> None:
    with api.server.connect() as connection:
        for method, path, body, status in (
            ("GET", "/nowhere", None, 404),
            ("GET", "/v1/nowhere", None, 404),
            ("POST", "/v1/nowhere", {}, 404),
            ("GET", "/ui/nowhere", None, 404),
            ("POST", "/", {}, 405),
            ("GET", CHAT, None, 405),
            ("DELETE", CHAT, None, 405),
            ("PUT", COMPLETIONS, {}, 405),
            ("POST", CHAT, {}, 400),
            ("POST", CHAT, b"{", 400),
            ("POST", CHAT, api.chat_body(model="nobody"), 404),
            ("GET", "/v1/models/nobody", None, 404),
            ("POST", "/health", {}, 405),
        ):
            reply = connection.request(method, path, body)
            assert reply.status == status, (method, path, reply.status)
            error = check_error(reply)
            assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b"", b" ", b"null", b"5", b'"text"', b"{]", b'{"a":1}x', b"{'a':1}", b"\x00"],
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/generate"])
def test_c085_bodies_that_are_no_object(api: Api, path: str, body: bytes) -> None:
    api.refused(path, body)


def invalid_utf8(field: bytes) -> bytes:
    return b'{"messages":[{"role":"user","content":' + field + b'}],"prompt":' + field + b"}"


@pytest.mark.parametrize(
    "field",
    [
        b'"\xff\xfe"',
        b'"\xc3"',
        b'"\xed\xa0\x80"',
        b'"\\ud800"',
        b'"\\udc00 \\ud800"',
        b'"a\nb"',
        b'"\\x41"',
        b"NaN",
        b"Infinity",
        b"-Infinity",
    ],
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_c085_text_that_is_no_json(api: Api, path: str, field: bytes) -> None:
    reply = api.post(path, invalid_utf8(field))
    if b"\\ud" in field and reply.status == 200:
        reply.body.decode("utf-8", "strict")  # repaired, then: but never sent back as a surrogate
        return
    assert reply.status == 400, reply.text
    check_error(reply)


@pytest.mark.parametrize("number", [b"NaN", b"1e999", b"-1e999", b"1" * 5000, b"01", b"+1", b"1."])
def test_c085_numbers_that_are_none(api: Api, number: bytes) -> None:
    body = encode({"messages": MESSAGES, "max_tokens": 1})[:-1] + b',"temperature":' + number + b"}"
    api.refused(CHAT, body)


def test_c085_a_repeated_key_is_no_crash(api: Api) -> None:
    body = b'{"prompt":"a","prompt":"b","max_tokens":1,"temperature":0}'
    assert api.post(COMPLETIONS, body).status in {200, 400}


@pytest.mark.parametrize("messages", [..., None, [], "hello", 5, {}, [5], [[]]])
def test_c086_bad_messages(api: Api, messages: object) -> None:
    body = api.chat_body(messages=messages)
    api.refused(CHAT, body, "messages")


def test_c087_unknown_model(api: Api, sdk: openai.OpenAI) -> None:
    for path, body in (
        (CHAT, api.chat_body(model="nobody")),
        (COMPLETIONS, api.completion_body("x", model="nobody")),
        (CHAT, api.chat_body(model="")),
    ):
        error = api.refused(path, body, status=404)
        assert error["code"] == "model_not_found"
    with pytest.raises(openai.NotFoundError) as caught:
        sdk.chat.completions.create(model="nobody", messages=MESSAGES)
    assert caught.value.code == "model_not_found"
    assert caught.value.type == "invalid_request_error"
    assert caught.value.request_id


def test_c088_routes_and_methods(api: Api) -> None:
    with api.server.connect() as connection:
        reply = connection.request("GET", "/v1/chat/nowhere")
        assert reply.status == 404
        check_error(reply)
        for path in (CHAT, COMPLETIONS):
            reply = connection.request("GET", path)
            assert reply.status == 405
            assert "POST" in (reply.header("allow") or "")
            check_error(reply)
        reply = connection.request("HEAD", "/health")
        assert reply.status == 200
        assert reply.body == b""
        reply = connection.request("GET", "/health?x=1")
        assert reply.status == 200
        assert reply.json["status"] == "ok"


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_c089_a_prompt_longer_than_the_window(api: Api, path: str) -> None:
    window = api.server.max_model_len
    size = window + 100
    if path == CHAT:
        error = api.refused(CHAT, api.chat_body("word " * size))
        assert error["param"] == "messages"
    else:
        error = api.refused(COMPLETIONS, api.completion_body([77] * size))
        assert error["param"] == "prompt"
        assert str(size) in error["message"]
    assert error["code"] == "context_length_exceeded"
    numbers = {int(number) for number in re.findall(r"\d+", error["message"])}
    assert window in numbers
    assert any(number > window for number in numbers)


def test_c089_a_prompt_that_fills_the_window(narrow: Api) -> None:
    window = narrow.server.max_model_len
    error = narrow.refused_completion("prompt", prompt=[77] * window, max_tokens=1)
    assert error["code"] == "context_length_exceeded"
    body = narrow.complete([77] * window, max_tokens=0, echo=True)
    assert body["usage"]["prompt_tokens"] == window
    body = narrow.complete([77] * (window - 1), max_tokens=1, ignore_eos=True)
    assert body["usage"]["total_tokens"] == window
    body = narrow.complete([77] * (window - 5), ignore_eos=True)  # the default of 16 is clipped
    assert body["usage"]["total_tokens"] == window
    assert body["choices"][0]["finish_reason"] == "length"


def test_c090_prompt_and_max_tokens_do_not_fit(api: Api) -> None:
    window = api.server.max_model_len
    for error in (
        api.refused_completion(prompt=[77] * 100, max_tokens=window - 50),
        api.refused_chat(max_tokens=window),
        api.refused_chat(max_completion_tokens=2**31),
        api.refused_completion(prompt="a", max_tokens=2**62),
    ):
        assert error["code"] == "context_length_exceeded"
        assert error["param"] in {"prompt", "messages", "max_tokens", "max_completion_tokens"}
    assert api.complete([77] * 100, max_tokens=4)["choices"]


@pytest.mark.parametrize("value", [-2, 5.5, "5", True, 1e400, [1], -(2**63)])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_c091_bad_limits(api: Api, name: str, value: Any) -> None:
    if value == float("inf"):
        body = encode(api.chat_body())[:-1] + f',"{name}":1e400}}'.encode()
        api.refused(CHAT, body)
        return
    assert api.refused_chat(name, **{name: value})["param"] == name
    if name == "max_tokens":
        assert api.refused_completion(name, **{name: value})["param"] == name


def test_c091_zero(api: Api) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        assert api.refused_chat(name, **{name: 0})["param"] == name


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"temperature": 3}, "temperature", "decimal_above_max_value"),
        ({"temperature": -1}, "temperature", "decimal_below_min_value"),
        ({"n": 0}, "n", "integer_below_min_value"),
        ({"n": 1000}, "n", "integer_above_max_value"),
        ({"max_tokens": "5"}, "max_tokens", "invalid_type"),
        ({"stream": "yes"}, "stream", "invalid_type"),
        ({"messages": []}, "messages", "empty_array"),
        ({"messages": ...}, "messages", "missing_required_parameter"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
        ({"messages": [{"role": "x", "content": ""}]}, "messages[0].role", "invalid_value"),
        ({"verbosity": "loud"}, "verbosity", "invalid_value"),
        ({"reasoning_effort": "huge"}, "reasoning_effort", "invalid_value"),
        ({"stream_options": {"include_usage": 1}, "stream": True}, None, "invalid_type"),
    ],
)
def test_c092_codes_and_params(api: Api, fields: Json, param: str | None, code: str) -> None:
    error = api.refused_chat(**fields)
    assert error["code"] == code
    assert error["param"] == (param or "stream_options.include_usage")


HOSTILE: list[Json] = [
    {"n": 1_000_000},
    {"n": 2**70},
    {"top_logprobs": 10**9, "logprobs": True},
    {"max_tokens": 2**63},
    {"max_tokens": -(2**63)},
    {"temperature": 1e308},
    {"temperature": 10**400},
    {"seed": 2**64},
    {"stop": ["x" * 2000]},
    {"stop": [str(i) for i in range(100_000)]},
    {"logit_bias": {"1": 10**400}},
    {"user": 5},
    {"metadata": 5},
    {"metadata": {str(i): "b" for i in range(1025)}},
    {"messages": [{"role": "user", "content": "x"}] * 100_000},
    {"cache_salt": "a/b"},
    {"cache_salt": ""},
    {"request_id": ""},
    {"request_id": "x" * 10_000},
    {"stream_interval": 0},
    {"truncate_prompt_tokens": -2},
    {"min_tokens": -1},
    {"priority": 2**40},
    {"chat_template_kwargs": "x"},
    {"repetition_penalty": 1e-400},
]


@pytest.mark.parametrize("fields", HOSTILE, ids=lambda fields: next(iter(fields)))
def test_c092_hostile_values_are_400(api: Api, fields: Json) -> None:
    reply = api.post(CHAT, api.chat_body(max_tokens=1) | fields)
    assert reply.status == 400, (reply.status, reply.text[:300])
    check_error(reply)


def test_c093_unknown_fields_are_ignored(api: Api) -> None:
    plain = api.chat(max_tokens=6)
    assert (
        api.chat(max_tokens=6, frobnicate=True, x_y=[1, {"a": None}])["choices"] == plain["choices"]
    )


OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
BEGINS_AN_OBJECT = r"\s*\{.*"

CONSTRAINTS: list[tuple[str, Any, str]] = [
    ("guided_json", OBJECT, BEGINS_AN_OBJECT),
    ("guided_json_object", True, BEGINS_AN_OBJECT),
    ("guided_regex", "Q+", "Q+"),
    ("guided_choice", ["Qa", "Qb"], "Qa|Qb"),
    ("guided_grammar", 'root ::= "Qa"', "Qa"),
    ("grammar", 'root ::= "Qa"', "Qa"),
    ("ebnf", 'root ::= "Qa"', "Qa"),
    ("regex", "Q+", "Q+"),
    ("json_schema", OBJECT, BEGINS_AN_OBJECT),
    ("structured_outputs", {"regex": "Q+"}, "Q+"),
    ("structured_outputs", {"choice": ["Qa", "Qb"]}, "Qa|Qb"),
    ("structured_outputs", {"json": OBJECT}, BEGINS_AN_OBJECT),
    ("structured_outputs", {"json_object": True}, BEGINS_AN_OBJECT),
    ("response_format", {"type": "json_object"}, BEGINS_AN_OBJECT),
    (
        "response_format",
        {"type": "json_schema", "json_schema": {"name": "x", "schema": OBJECT}},
        BEGINS_AN_OBJECT,
    ),
    ("response_format", {"type": "json_schema", "schema": OBJECT}, BEGINS_AN_OBJECT),
    ("response_format", {"type": "json_object", "schema": OBJECT}, BEGINS_AN_OBJECT),
]


@pytest.mark.parametrize(("name", "value", "pattern"), CONSTRAINTS)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_c094_constraints_are_obeyed_or_refused(
    api: Api, path: str, name: str, value: Any, pattern: str
) -> None:
    """Never ignored: the text shows it, also where the model would never say such a thing."""
    make = api.chat_body if path == CHAT else api.completion_body
    reply = api.post(path, make("Hello!", max_tokens=12, **{name: value}))
    if reply.status != 200:
        assert reply.status == 400, reply.text
        assert (check_error(reply)["param"] or "").startswith(name)
        return
    choice = reply.json["choices"][0]
    text = choice["message"]["content"] if path == CHAT else choice["text"]
    assert re.fullmatch(pattern, text, re.DOTALL), text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("functions", [{"name": "f"}, {"name": "f"}]),
        ("function_call", "auto"),
        ("tool_choice", "required"),  # there are no tools
        ("structural_tag", {"type": "nothing"}),
        ("structured_outputs", {"regex": "a", "choice": ["a"]}),
        ("structured_outputs", {}),
        ("regex", "("),
        ("guided_regex", "(?=a)b"),
        ("response_format", {"type": "poem"}),
        ("response_format", {"type": "json_schema"}),
        ("stop_regex", "a+"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_c094_what_cannot_be_obeyed_is_refused(
    api: Api, name: str, value: Any, stream: bool
) -> None:
    error = api.refused_chat(name, max_tokens=2, stream=stream, **{name: value})
    assert error["param"].startswith(name)


def test_c094_two_constraints_exclude_each_other(api: Api) -> None:
    api.refused_chat(regex="a", guided_choice=["a"])


def test_c094_what_asks_for_nothing_is_accepted(api: Api) -> None:
    plain = api.chat(max_tokens=4)["choices"]
    for fields in (
        {"response_format": {"type": "text"}},
        {"tool_choice": "none"},
        {"tools": []},
        {"parallel_tool_calls": True},
        {"use_beam_search": False},
        {"priority": 0},
        {"length_penalty": 1.0},
    ):
        assert api.chat(max_tokens=4, **fields)["choices"] == plain, fields


def read_refusal(connection: Any) -> Reply:
    reply = connection.read_reply()
    assert reply.body is not None
    return reply


def test_c096_a_body_above_the_limit(guarded: Api) -> None:
    body = encode(guarded.chat_body("x" * 100_001))
    with guarded.server.connect() as connection:
        with contextlib.suppress(ConnectionError):  # refused before all of it was sent
            connection.send("POST", CHAT, body, guarded.headers)
        reply = read_refusal(connection)
        assert reply.status == 413
        error = check_error(reply)
        assert error["type"] == "invalid_request_error"
        if (reply.header("connection") or "").lower() == "close":
            assert connection.is_closed_by_peer()
        else:
            assert connection.request("GET", "/health").status == 200
    assert guarded.chat("x", max_tokens=1)


def test_c096_chunked_above_the_limit(guarded: Api) -> None:
    headers = {**guarded.headers, "content-length": None, "transfer-encoding": "chunked"}
    with guarded.server.connect() as connection:
        connection.send("POST", CHAT, b"", headers)
        piece = b"x" * 30_000
        try:
            for _ in range(5):
                connection.send_bytes(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            connection.send_bytes(b"0\r\n\r\n")
        except ConnectionError:
            pass
        reply = read_refusal(connection)
        assert reply.status == 413
        check_error(reply)


def test_c096_announced_above_the_limit(guarded: Api) -> None:
    """The answer comes without waiting for the body."""
    with guarded.server.connect(timeout=5) as connection:
        headers = {**guarded.headers, "content-length": "5000000"}
        connection.send("POST", CHAT, b"", headers)
        assert read_refusal(connection).status == 413


@pytest.mark.parametrize("nest", [b"[", b'{"a":', b'[{"a":'])
def test_c097_nested_100000_deep(api: Api, nest: bytes) -> None:
    api.refused(CHAT, nest * 100_000)
    body = b'{"messages":[{"role":"user","content":"x"}],"metadata":' + nest * 100_000 + b"}"
    api.refused(CHAT, body)
    body = b'{"messages":[{"role":"user","content":"x"}],"unknown":' + nest * 100_000 + b"}"
    api.refused(CHAT, body)
    assert api.server.health() == (200, "ok")


@pytest.mark.parametrize(
    "media_type",
    [
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/xml",
    ],
)
def test_c098_other_content_types(api: Api, media_type: str | None) -> None:
    reply = api.post(CHAT, api.chat_body(max_tokens=1), {"content-type": media_type})
    assert reply.status == 415
    check_error(reply)


@pytest.mark.parametrize(
    "media_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON;charset=UTF-8",
        " application/json ",
    ],
)
def test_c098_json_content_types(api: Api, media_type: str) -> None:
    reply = api.post(CHAT, api.chat_body(max_tokens=1), {"content-type": media_type})
    assert reply.status == 200, reply.text


WRONG_KEYS: list[str | None] = [
    None,
    "",
    "Basic x",
    "Bearer",
    "Bearer ",
    "Bearer wrong",
    "Bearer key-one2",
    "Bearer key-on",
    "key-one",
    "Bearer ké",
    "Bearer key-one, key-two",
    "Bearer " + "x" * 10_000,
]


@pytest.mark.parametrize("value", WRONG_KEYS)
def test_c099_without_a_key(guarded: Api, value: str | None) -> None:
    server = guarded.server
    with server.connect() as connection:
        for method, path, body in (
            ("POST", CHAT, guarded.chat_body()),
            ("POST", CHAT, b"{"),
            ("POST", COMPLETIONS, {}),
            ("GET", "/v1/models", None),
            ("GET", "/v1/models/x", None),
            ("POST", "/generate", {"prompt": "x"}),
            ("POST", "/tokenize", {"prompt": "x"}),
        ):
            reply = connection.request(method, path, body, {"authorization": value})
            assert reply.status == 401, (path, reply.status)
            error = check_error(reply)
            assert error["type"] == "invalid_request_error"
            assert error["code"] in {"invalid_api_key", None}
            assert "key-one" not in error["message"]


@pytest.mark.parametrize(
    "value", ["Bearer key-one", "bearer key-one", "BEARER key-two", "Bearer   key-two"]
)
def test_c099_with_a_key(guarded: Api, value: str) -> None:
    reply = guarded.post(CHAT, guarded.chat_body(max_tokens=1), {"authorization": value})
    assert reply.status == 200, reply.text


def test_c099_health_is_open(guarded: Api) -> None:
    assert guarded.server.health() == (200, "ok")


def test_c099_sdk(guarded: Api) -> None:
    with openai.OpenAI(**sdk_options(guarded.server, "wrong")) as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            client.models.list()
        assert caught.value.code == "invalid_api_key"
    with openai.OpenAI(**sdk_options(guarded.server, "key-two")) as client:
        assert client.models.list().data


def test_c099_any_key_will_do_where_none_is_asked_for(api: Api) -> None:
    for value in (None, "Bearer whatever", "Basic x", "Bearer é"):
        reply = api.post(CHAT, api.chat_body(max_tokens=1), {"authorization": value})
        assert reply.status == 200


def test_c100_queue_full(narrow: Api) -> None:
    """One runs, one waits; the third is told to come back, and may."""
    body = narrow.chat_body(stream=True, max_tokens=900, ignore_eos=True)
    server = narrow.server
    narrow.wait_idle()
    with server.connect() as running, server.connect() as waiting:
        running.send("POST", CHAT, body)
        eventually(lambda: server.stats()["num_running"] == 1)
        waiting.send("POST", CHAT, body)
        eventually(lambda: server.stats()["num_waiting"] == 1)
        reply = narrow.post(CHAT, narrow.chat_body(max_tokens=1))
        assert reply.status in {429, 503}
        error = check_error(reply)
        assert error["type"] in {"requests", "tokens", "service_unavailable_error"}
        assert 1 <= float(reply.header("retry-after")) <= 120
        assert reply.header("x-should-retry") != "false"
        # From its head: with no work of the application.
        refused = rf"POST {CHAT} {reply.status} \d\.\d ms"
        eventually(lambda: re.search(refused, server.stderr))

        done = threading.Event()
        answers: list[Any] = []

        def retry() -> None:
            options = sdk_options(server) | {"max_retries": 2}
            with openai.OpenAI(**options) as client:
                answers.append(
                    client.chat.completions.create(
                        model=server.model, messages=MESSAGES, max_tokens=1
                    )
                )
            done.set()

        thread = threading.Thread(target=retry)
        thread.start()
        assert not done.wait(0.3)
        running.close()
        waiting.close()
        thread.join(30)
        assert answers
        assert answers[0].choices
    narrow.wait_idle()


def test_c101_request_ids_are_unique(api: Api) -> None:
    ids = []
    with api.server.connect() as connection:
        for method, path, body in [
            ("POST", CHAT, api.chat_body(max_tokens=1)),
            ("POST", CHAT, api.chat_body(max_tokens=1, stream=True)),
            ("POST", COMPLETIONS, api.completion_body("a", max_tokens=1)),
            ("POST", CHAT, {}),
            ("GET", "/nowhere", None),
            ("GET", CHAT, None),
            ("GET", "/health", None),
            ("GET", "/v1/models", None),
        ] * 2:
            reply = connection.request(method, path, body)
            assert reply.body
            ids.append(reply.header("x-request-id"))
    assert all(ids)
    assert len(set(ids)) == len(ids)


def test_c101_a_clients_own_id_is_echoed_only_if_it_is_plain(api: Api) -> None:
    body = api.chat_body(max_tokens=1)
    mine = "a1b2c3d4-e5f6_7890"
    assert api.post(CHAT, body, {"x-request-id": mine}).header("x-request-id") == mine
    for odd in ("x" * 5000, "a b", "<script>", "é", "a\tb", "../../x", ""):
        reply = api.post(CHAT, body, {"x-request-id": odd})
        assert reply.status == 200
        assert reply.header("x-request-id") not in {odd, "", None}


def test_c101_two_requests_with_one_id_do_not_meet(api: Api) -> None:
    """A client's id is never a key of ours."""
    prompts = ["Hello!", "Who are you?"] * 4

    def run(prompt: str) -> str:
        body = api.chat_body(prompt, max_tokens=16, request_id="same", rid="same")
        reply = api.post(CHAT, body, {"x-request-id": "same-id"})
        assert reply.status == 200, reply.text
        return reply.json["choices"][0]["message"]["content"]

    texts = in_threads(run, prompts)
    assert texts == [api.chat_text(prompt, max_tokens=16) for prompt in prompts]


ORIGIN = "https://app.example"


def test_c102_preflight(guarded: Api) -> None:
    with guarded.server.connect() as connection:
        for path in (CHAT, COMPLETIONS, "/v1/models", "/health"):
            reply = connection.request(
                "OPTIONS",
                path,
                headers={
                    "origin": ORIGIN,
                    "access-control-request-method": "POST",
                    "access-control-request-headers": "authorization,content-type,x-stainless-os",
                },
            )
            assert reply.status in {200, 204}, path
            assert reply.body in {b"", b"OK"} or reply.status == 200
            assert reply.header("access-control-allow-origin") in {ORIGIN, "*"}
            assert "POST" in reply.header("access-control-allow-methods")
            allowed = reply.header("access-control-allow-headers").lower()
            for name in ("authorization", "content-type", "x-stainless-os"):
                assert name in allowed


def test_c102_answers_errors_and_streams_carry_the_origin(guarded: Api) -> None:
    for body, authorization, status in (
        (guarded.chat_body(max_tokens=1), "Bearer key-one", 200),
        (guarded.chat_body(max_tokens=1, stream=True), "Bearer key-one", 200),
        ({}, "Bearer key-one", 400),
        (guarded.chat_body(model="nobody"), "Bearer key-one", 404),
        (guarded.chat_body(max_tokens=1), "Bearer wrong", 401),
    ):
        reply = guarded.post(CHAT, body, {"origin": ORIGIN, "authorization": authorization})
        assert reply.status == status
        assert reply.header("access-control-allow-origin") in {ORIGIN, "*"}
        exposed = (reply.header("access-control-expose-headers") or "").lower()
        assert "x-request-id" in exposed


def test_c102_other_origins_are_not_allowed(guarded: Api) -> None:
    for origin in ("https://evil.example", "https://app.example.evil", "https://appXexample"):
        reply = guarded.post(CHAT, guarded.chat_body(max_tokens=1), {"origin": origin})
        assert reply.header("access-control-allow-origin") is None


def test_c102_closed_by_default(api: Api) -> None:
    reply = api.post(CHAT, api.chat_body(max_tokens=1), {"origin": ORIGIN})
    assert reply.status == 403
    check_error(reply)
    assert reply.header("access-control-allow-origin") is None


FOREIGN = [
    {"host": "evil.example"},
    {"host": "evil.example:8000"},
    {"host": "localhost.evil.example"},
    {"host": ""},
    {"origin": "http://evil.example"},
    {"origin": "null"},
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_web_pages_cannot_use_a_server_on_loopback(api: Api, headers: Json) -> None:
    """A page names itself in Origin, and in Host if its name was rebound."""
    for method, path, body in (
        ("POST", CHAT, api.chat_body(max_tokens=1)),
        ("GET", "/health", None),
        ("GET", "/nowhere", None),
        ("OPTIONS", CHAT, None),
    ):
        with api.server.connect() as connection:
            reply = connection.request(method, path, body, headers)
            assert reply.status == 403, (path, headers)
            check_error(reply)
            assert reply.header("x-should-retry") == "false"


def test_local_pages_and_programs_can_use_a_server_on_loopback(api: Api) -> None:
    for headers in (
        {"host": f"localhost:{api.server.port}"},
        {"host": "LOCALHOST"},
        {"host": "[::1]:1"},
        {"origin": "http://localhost:3000"},
        {"origin": f"http://127.0.0.1:{api.server.port}"},
    ):
        reply = api.post(CHAT, api.chat_body(max_tokens=1), headers)
        assert reply.status == 200, headers
        assert reply.header("access-control-allow-origin") is None


def test_what_would_fail_again_says_so(api: Api) -> None:
    for reply in (
        api.post(CHAT, {}),
        api.post(CHAT, api.chat_body(model="nobody")),
        api.post("/nowhere", {}),
    ):
        assert reply.header("x-should-retry") == "false"


def test_errors_leak_nothing(api: Api) -> None:
    secret = "s3cret-" * 30
    bodies: list[Any] = [
        b"{" + secret.encode(),
        {"messages": secret},
        {"messages": user("x"), "temperature": secret},
        {"messages": user("x"), "model": secret * 100},
        {"messages": [{"role": secret, "content": "x"}]},
        {"messages": user([{"type": secret}])},
        {"messages": user("x"), "logit_bias": {secret * 10: 1}},
        {"messages": user("x"), secret * 5: 1, "n": "x"},
    ]
    for body in bodies:
        reply = api.post(CHAT, body)
        assert reply.status in {400, 404}
        assert len(reply.body) < 2000
        assert not LEAK.search(reply.text)


def test_headers_beyond_reason(api: Api) -> None:
    with api.server.connect() as connection:
        try:
            connection.send("GET", "/health", headers={f"x-{i}": "v" * 50 for i in range(10_000)})
            reply = connection.read_reply()
            assert reply.status in {200, 400, 413, 431}
        except (ConnectionError, ConnectionEnded):
            pass  # hung up on, which is an answer as well
    assert api.server.health() == (200, "ok")


def test_garbage_on_the_socket(api: Api) -> None:
    for data in (b"\x16\x03\x01\x02\x00\x01", b"HELLO\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
        with api.server.connect(timeout=5) as connection:
            connection.send_bytes(data)
            connection.socket.shutdown(1)
            try:
                while connection.socket.recv(4096):
                    pass
            except OSError:
                pass
    assert api.server.health() == (200, "ok")


def test_http_1_0(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.send_bytes(b"GET /health HTTP/1.0\r\n\r\n")
        data = b"".join(connection.read_to_end())
    assert b" 200 " in data.split(b"\r\n")[0]
    assert json.loads(data.split(b"\r\n\r\n", 1)[1])["status"] == "ok"
