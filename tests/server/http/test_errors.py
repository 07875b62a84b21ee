import logging
from typing import ClassVar

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from litestar.exceptions import (
    HTTPException,
    InternalServerException,
    MethodNotAllowedException,
    NotFoundException,
)
from litestar.exceptions.http_exceptions import RequestEntityTooLarge

from core.contract.errors import (
    ContextLengthExceeded,
    DeadlineExceeded,
    GenerationFailed,
    InvalidRequest,
    ModelLoadError,
    QueueFull,
    RequestCancelled,
    RoseInferError,
    Unavailable,
)
from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest
from server.http.apis import openai_shape
from server.http.decoding import decode_request
from server.http.errors import MAX_MESSAGE_LENGTH, APIError, stream_error, to_api_error
from tests.support.asgi import Exchange, ask
from tests.support.each import each
from tests.support.engines import AnsweringEngine, out

INVALID = "invalid_request_error"
RETRY = {"retry-after": "1"}
FAILED = "The server failed on this request."
USER = [{"role": "user", "content": "hi"}]


def subclasses(cls):
    return {cls}.union(*map(subclasses, cls.__subclasses__()))


def row(error, status, type_=INVALID, code=None, *, param=None, headers=None):
    return error, status, type_, param, code, headers or {}


class TestTable:
    ROWS = (
        row(APIError(418, "tea", type_="t", param="p", code="c"), 418, "t", "c", param="p"),
        row(InvalidRequest("no", param="n", code="bad"), 400, code="bad", param="n"),
        row(ContextLengthExceeded("no", param="n"), 400, code="context_length_exceeded", param="n"),
        row(QueueFull("no"), 429, "requests", "rate_limit_exceeded", headers=RETRY),
        row(RequestCancelled(), 499),
        row(DeadlineExceeded("no"), 504, "timeout_error", "request_timeout"),
        row(
            Unavailable("no"),
            503,
            "service_unavailable_error",
            "server_is_overloaded",
            headers=RETRY,
        ),
        row(GenerationFailed("no"), 500, "server_error"),
        row(RoseInferError("no"), 500, "server_error"),
        row(NotFoundException(), 404, code="unknown_url"),
        row(
            MethodNotAllowedException(headers={"Allow": "GET"}),
            405,
            code="method_not_supported",
            headers={"Allow": "GET"},
        ),
        row(
            RequestEntityTooLarge(),
            413,
            code="request_too_large",
            headers={"connection": "close"},
        ),
        row(InternalServerException("x"), 500, "server_error"),
        row(HTTPException("no", status_code=409), 409),
        row(ZeroDivisionError("x"), 500, "server_error"),
    )
    CASES: ClassVar = {type(case[0]): case for case in ROWS}

    @each("kind", CASES)
    def test_status_type_code_param_headers(self, kind):
        error, status, type_, param, code, headers = self.CASES[kind]
        found = to_api_error(error)
        assert (found.status, found.error.type, found.error.param, found.error.code) == (
            status,
            type_,
            param,
            code,
        )
        assert found.headers == headers
        assert found.error.message

    def test_every_engine_error_is_in_the_table(self):
        on_the_wire = subclasses(RoseInferError) - {ModelLoadError}  # it ends the process
        assert {
            cls for cls in on_the_wire if cls.__module__ == "core.contract.errors"
        } <= self.CASES.keys()

    @pytest.mark.parametrize("error", [NotFoundException("/etc/x"), InternalServerException("0x1")])
    def test_framework_messages_are_not_passed_on(self, error):
        assert to_api_error(error).error.message in {"There is no such route.", FAILED}

    @settings(deadline=None)
    @given(st.text())
    def test_unknown_exceptions_reveal_nothing(self, text):
        secret = f"{text} /usr/lib/x.py <object at 0x7f0012> Traceback"
        error = to_api_error(RuntimeError(secret)).error
        assert error.message == FAILED
        assert (error.param, error.code) == (None, None)

    @settings(deadline=None)
    @given(st.text(min_size=MAX_MESSAGE_LENGTH))
    def test_messages_have_a_limited_length(self, text):
        for error in (
            to_api_error(InvalidRequest(text)).error,
            to_api_error(APIError(400, text)).error,
            stream_error(text),
        ):
            assert len(error.message) <= MAX_MESSAGE_LENGTH

    def test_all_four_keys_are_always_written(self):
        assert msgspec.json.decode(openai_shape(500, stream_error("no"))) == {
            "error": {"message": "no", "type": "server_error", "param": None, "code": None}
        }


def part(**fields):
    return [{"role": "user", "content": [fields]}]


class TestInvalidBodies:
    """Every form of msgspec's messages."""

    @each(
        ("fields", "param", "code"),
        [
            # wrong types
            ({"n": "1"}, "n", "invalid_type"),
            ({"n": True}, "n", "invalid_type"),
            ({"n": 1.5}, "n", "invalid_type"),
            ({"temperature": "hot"}, "temperature", "invalid_type"),
            ({"temperature": True}, "temperature", "invalid_type"),
            ({"stop": 5}, "stop", "invalid_type"),
            ({"stream": "true"}, "stream", "invalid_type"),
            (
                {"stream_options": {"include_usage": 1}},
                "stream_options.include_usage",
                "invalid_type",
            ),
            ({"response_format": "json"}, "response_format", "invalid_type"),
            ({"messages": "hi"}, "messages", "invalid_type"),
            ({"messages": [5]}, "messages[0]", "invalid_type"),
            ({"messages": [*USER, {"role": 5}]}, "messages[1].role", "invalid_type"),
            ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_type"),
            (
                {"messages": part(type="text", text=5)},
                "messages[0].content[0].text",
                "invalid_type",
            ),
            # dictionaries
            ({"logit_bias": {"1": "a"}}, "logit_bias[...]", "invalid_type"),
            ({"logit_bias": {"1": 101}}, "logit_bias[...]", "decimal_above_max_value"),
            ({"metadata": "x"}, "metadata", "invalid_type"),
            ({"metadata": {str(i): 0 for i in range(1025)}}, "metadata", "array_above_max_length"),
            # ranges
            ({"n": 0}, "n", "integer_below_min_value"),
            ({"n": 129}, "n", "integer_above_max_value"),
            ({"max_tokens": -2}, "max_tokens", "integer_below_min_value"),
            ({"seed": 2**63}, "seed", "integer_above_max_value"),
            ({"seed": 10**30}, "seed", "integer_above_max_value"),
            ({"temperature": -0.1}, "temperature", "decimal_below_min_value"),
            ({"temperature": 2.1}, "temperature", "decimal_above_max_value"),
            ({"repetition_penalty": 0}, "repetition_penalty", "decimal_below_min_value"),
            # lengths
            ({"messages": []}, "messages", "empty_array"),
            ({"stop": ["a", 1]}, "stop[1]", "invalid_type"),
            ({"stop": ["a"] * 65}, "stop", "array_above_max_length"),
            ({"stop": "a" * 1025}, "stop", "string_above_max_length"),
            ({"cache_salt": ""}, "cache_salt", "invalid_value"),
            # missing fields
            (
                {"messages": [{"role": "user"}]},
                "messages[0].content",
                "missing_required_parameter",
            ),
            ({"messages": [{}]}, "messages[0].role", "missing_required_parameter"),
            (
                {"messages": [{"role": "tool", "content": "x"}]},
                "messages[0].tool_call_id",
                "missing_required_parameter",
            ),
            ({"messages": part()}, "messages[0].content[0].type", "missing_required_parameter"),
            ({"response_format": {}}, "response_format.type", "missing_required_parameter"),
            (
                {"tools": [{"type": "function", "function": {}}]},
                "tools[0].function.name",
                "missing_required_parameter",
            ),
            # enums and tags
            ({"reasoning_effort": "x"}, "reasoning_effort", "invalid_value"),
            ({"modalities": ["smell"]}, "modalities[0]", "invalid_value"),
            ({"messages": [{"role": "king", "content": ""}]}, "messages[0].role", "invalid_value"),
            ({"messages": part(type="smell")}, "messages[0].content[0].type", "invalid_value"),
            ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
            ({"tool_choice": "maybe"}, "tool_choice", "invalid_value"),
            # patterns
            (
                {"tools": [{"type": "function", "function": {"name": "a b"}}]},
                "tools[0].function.name",
                "invalid_value",
            ),
            ({"cache_salt": "a@b"}, "cache_salt", "invalid_value"),
        ],
    )
    def test_field(self, fields, param, code):
        error = decode_error(msgspec.json.encode({"messages": USER} | fields))
        assert (error.param, error.code) == (param, code)
        assert error.message.startswith(
            f"Missing required parameter: '{param}'."
            if code == "missing_required_parameter"
            else f"Invalid '{param}': "
        )
        assert error.message.endswith(".")
        assert "`$" not in error.message
        assert "regex" not in error.message

    @each(
        ("fields", "rule"),
        [
            (
                {"tools": [{"type": "function", "function": {"name": "a b"}}]},
                "It must be of letters, digits, _, . and -, at most 256.",
            ),
            (
                {"response_format": {"type": "json_schema", "json_schema": {"name": "a.b"}}},
                "It must be of letters, digits, _ and -, at most 64.",
            ),
        ],
    )
    def test_names_say_what_they_may_contain(self, fields, rule):
        error = decode_error(msgspec.json.encode({"messages": USER} | fields))
        assert error.message.endswith(rule)

    @each(
        ("body", "says"),
        [
            (b"{", "The body is not valid JSON: Input data was truncated"),
            (b'{"messages": nope}', "The body is not valid JSON: JSON is malformed"),
            (b'{"messages": NaN}', "The body is not valid JSON"),
            (b"[]", "The body is not what was expected: Expected `object`, got `array`."),
            (b"null", "The body is not what was expected: Expected `object`, got `null`."),
            (b'{"model": "\xff"}', "The body is not valid UTF-8."),
            (b'{"messages":' + b"[" * 100_000, "Invalid 'messages[0]'"),
            (b'{"tools":' + b'[{"a":' * 50_000, "The body is nested too deeply."),
            (b'{"unknown":' + b"[" * 100_000, "The body is nested too deeply."),
            (b'{"unknown":' + b'{"a":' * 100_000, "The body is nested too deeply."),
            (b'{"logit_bias":' + b"[" * 100_000, "Invalid 'logit_bias'"),
            (b'{"audio":' + b'{"a":' * 100_000, "The body is nested too deeply."),
        ],
    )
    def test_whole_body(self, body, says):
        error = decode_error(body)
        assert error.message.startswith(says)
        if not says.startswith("Invalid"):
            assert (error.param, error.code) == (None, None)

    def test_a_missing_top_level_field(self):
        error = decode_error(b"{}")
        assert (error.param, error.code) == ("messages", "missing_required_parameter")

    def test_nested_arrays_of_ids(self):
        error = decode_error(b'{"prompt": [[1, "a"]]}', CompletionRequest)
        assert (error.param, error.code) == ("prompt[0][1]", "invalid_type")

    @settings(deadline=None)
    @given(st.text(min_size=1))
    def test_client_text_changes_neither_param_nor_code(self, text):
        for value in (text, f"{text}` - at `$.evil", f"{text}' - at `$.evil`"):
            if value in {"low", "medium", "high"}:
                continue
            error = decode_error(msgspec.json.encode({"messages": USER, "verbosity": value}))
            assert (error.param, error.code) == ("verbosity", "invalid_value")

    def test_long_values_are_truncated(self):
        error = decode_error(msgspec.json.encode({"messages": USER, "verbosity": "x" * 10**5}))
        assert len(error.message) <= MAX_MESSAGE_LENGTH
        assert error.param == "verbosity"


def decode_error(body, type_=ChatCompletionRequest):
    """The error object of an invalid body."""
    with pytest.raises(APIError) as caught:
        decode_request(body, type_)
    assert caught.value.status == 400
    assert caught.value.error.type == INVALID
    return caught.value.error


def check_shape(exchange, status, *, retried=False):
    """Check what all errors have and return the error object."""
    assert exchange.status == status
    assert exchange.headers["content-type"] == "application/json"
    assert exchange.headers["x-request-id"]
    assert int(exchange.headers["content-length"]) == len(exchange.body)
    assert exchange.json.keys() == {"error"}
    error = exchange.json["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"]
    assert ("retry-after" in exchange.headers) == retried
    assert exchange.headers["x-should-retry"] == ("true" if retried else "false")
    return error


CHAT = "/v1/chat/completions"
JSON = {"content-type": "application/json"}


@pytest.mark.anyio
class TestOverTheApplication:
    @pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/generate", "/tokenize"])
    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"{",
            b"[]",
            b"null",
            b'{"messages": [{"role": "user", "content": "\xff"}], "prompt": "\xff"}',
            b'{"unknown":' + b"[" * 100_000,
            b"[" * 100_000,
            b'{"messages": [], "prompt": 5}',
        ],
        ids=["empty", "brace", "array", "null", "utf8", "deep field", "deep", "wrong"],
    )
    async def test_bad_bodies(self, start_app, path, body):
        app = await start_app()
        error = check_shape(await ask(app, "POST", path, body, JSON), 400)
        assert error["type"] == INVALID

    async def test_an_empty_body_says_so(self, start_app):
        error = check_shape(await ask(await start_app(), "POST", CHAT, b""), 400)
        assert error["message"] == "The body is empty; a JSON object is expected."

    @pytest.mark.parametrize(
        "content_type",
        [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "x",
            "",
        ],
    )
    async def test_wrong_content_type(self, start_app, content_type):
        headers = {"content-type": content_type}
        exchange = await ask(await start_app(), "POST", CHAT, {"messages": USER}, headers)
        error = check_shape(exchange, 415)
        assert content_type.partition(";")[0] in error["message"]

    async def test_the_content_type_is_required(self, start_app):
        exchange = await ask(await start_app(), "POST", CHAT, {"messages": USER}, {})
        assert "absent" in check_shape(exchange, 415)["message"]

    @pytest.mark.parametrize("headers", [{"content-type": "Application/JSON; charset=utf-8"}, JSON])
    async def test_accepted_content_types(self, start_app, headers):
        exchange = await ask(await start_app(), "POST", CHAT, {"messages": USER}, headers)
        assert exchange.status == 200
        assert exchange.json["choices"][0]["message"]["content"] == "Hi there!"

    @pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
    @pytest.mark.parametrize("path", ["/nothing", "/v1", "/v1/nothing", "/v1/chat/completions/x/y"])
    async def test_404(self, start_app, method, path):
        assert check_shape(await ask(await start_app(), method, path), 404)["code"] == "unknown_url"

    @pytest.mark.parametrize(
        ("method", "path", "allowed"),
        [("GET", CHAT, "POST"), ("DELETE", "/v1/models/m", "GET"), ("POST", "/health", "GET")],
    )
    async def test_405(self, start_app, method, path, allowed):
        exchange = await ask(await start_app(), method, path)
        assert check_shape(exchange, 405)["code"] == "method_not_supported"
        assert allowed in exchange.headers["allow"].split(", ")

    @pytest.mark.parametrize("is_announced", [True, False])
    async def test_413(self, start_app, is_announced):
        app = await start_app(max_body_size=1000)
        headers = JSON | ({"content-length": "1001"} if is_announced else {})
        exchange = await ask(app, "POST", CHAT, b" " * 1001, headers)
        assert check_shape(exchange, 413)["code"] == "request_too_large"
        assert exchange.headers["connection"] == "close"
        fits = msgspec.json.encode({"messages": USER}).ljust(1000)
        assert (await ask(app, "POST", CHAT, fits)).status == 200

    async def test_unknown_model(self, start_app):
        app = await start_app()
        body = {"messages": USER, "model": "x" * 1024}
        error = check_shape(await ask(app, "POST", CHAT, body), 404)
        assert error["code"] == "model_not_found"
        assert len(error["message"]) <= MAX_MESSAGE_LENGTH

    async def test_loading_draining_and_failed(self, start_app):
        app = await start_app()
        await app.bridge.drain(0)
        for method, path in [
            ("POST", CHAT),
            ("POST", "/v1/completions"),
            ("POST", "/generate"),
            ("POST", "/tokenize"),
            ("GET", "/v1/models"),
        ]:
            body = {"messages": USER, "prompt": "x"} if method == "POST" else b""
            if path == "/tokenize":
                del body["messages"]
            error = check_shape(await ask(app, method, path, body), 503, retried=True)
            assert error["type"] == "service_unavailable_error"
        exchange = await ask(app, "GET", "/health")
        assert (exchange.status, exchange.json["status"]) == (503, "draining")

    async def test_queue_full(self, start_app, engine):
        app = await start_app(engine, max_queued_requests=0)
        streams = app.litestar.state.serving.admission.choices.limit
        body = {"prompt": ["x"] * streams}
        exchange = Exchange("POST", "/v1/completions", chunks=[msgspec.json.encode(body)])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.run, app)
            await engine.admit(1)
            error = check_shape(await ask(app, "POST", CHAT, {"messages": USER}), 429, retried=True)
            assert (error["type"], error["code"]) == ("requests", "rate_limit_exceeded")
            exchange.disconnect()
        body = {"prompt": ["x"] * (streams + 1)}
        check_shape(await ask(app, "POST", "/v1/completions", body), 400)

    @pytest.mark.parametrize("stream", [False, True])
    async def test_a_failed_generation(self, start_app, stream):
        app = await start_app(AnsweringEngine(lambda r: [out(r.request_id, error="It failed.")]))
        body = {"messages": USER, "stream": stream}
        error = check_shape(await ask(app, "POST", CHAT, body), 500)
        assert error == {
            "message": "It failed.",
            "type": "server_error",
            "param": None,
            "code": None,
        }

    @pytest.mark.parametrize("stream", [False, True])
    async def test_a_request_that_the_engine_finds_invalid(self, start_app, stream):
        answer = [out("", error="No such token.", is_invalid=True)]
        engine = AnsweringEngine(
            lambda r: [msgspec.structs.replace(o, request_id=r.request_id) for o in answer]
        )
        app = await start_app(engine)
        error = check_shape(await ask(app, "POST", CHAT, {"messages": USER, "stream": stream}), 400)
        assert (error["message"], error["type"]) == ("No such token.", "invalid_request_error")

    async def test_a_bug_reveals_nothing_and_is_logged(self, start_app, caplog, monkeypatch):
        app = await start_app()

        def broken(*_args, **_kwargs):
            raise RuntimeError("/usr/lib/secret.py 0x7f0012")

        monkeypatch.setattr("server.apis.openai.routes.translate_chat", broken)
        with caplog.at_level(logging.INFO):
            exchange = await ask(app, "POST", f"{CHAT}?q=%ff", {"messages": USER})
        assert check_shape(exchange, 500)["message"] == FAILED
        assert "secret.py" in caplog.text

    async def test_a_disconnect_during_the_upload_is_not_logged_as_a_failure(
        self, start_app, caplog
    ):
        app = await start_app()
        exchange = Exchange("POST", CHAT, chunks=[b'{"mess'], headers=JSON, is_complete=False)
        exchange.disconnect()
        with caplog.at_level(logging.INFO):
            await exchange.run(app)
        assert exchange.failure is None
        assert exchange.status == 499
        assert not [record for record in caplog.records if record.levelno > logging.INFO]
