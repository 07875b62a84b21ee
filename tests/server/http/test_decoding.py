"""decode_request: unknown fields are named, sizes are bounded before objects are made."""

from __future__ import annotations

import gc

import msgspec
import pytest

from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest
from schemas.limits import (
    DEFAULT_FIELD_BYTES,
    MAX_COMMAS,
    MAX_CONTAINERS,
    MAX_KEYS,
    field_bytes,
)
from server.http.decoding import MAX_COLONS, MAX_SCANNED, decode_request
from server.http.errors import APIError
from tests.schemas.conftest import BODIES

USER = [{"role": "user", "content": "hi"}]
LONG = "x" * DEFAULT_FIELD_BYTES


def encoded(**fields):
    return msgspec.json.encode({"messages": USER} | fields)


def refusal(body, type_=ChatCompletionRequest, **options):
    with pytest.raises(APIError) as caught:
        decode_request(body, type_, **options)
    return caught.value


class TestUnknownFields:
    @pytest.mark.parametrize(("type_", "body"), BODIES.items())
    def test_are_named_in_their_order(self, type_, body):
        noisy = {"temprature": 1} | body | {"x y": [{}, None]}
        decoded = decode_request(msgspec.json.encode(noisy), type_)
        assert decoded.request == msgspec.convert(body, type_)
        assert type(decoded.request) is type_
        assert decoded.ignored == ("temprature", "x y")

    def test_none(self):
        assert decode_request(encoded(), ChatCompletionRequest).ignored == ()

    def test_beside_a_wrong_field(self):
        error = refusal(encoded(temprature=1, temperature=3))
        assert (error.status, error.error.param) == (400, "temperature")

    def test_strict(self):
        error = refusal(encoded(temprature=1), is_strict=True)
        assert error.status == 400
        assert error.error.message == "Unknown parameter: 'temprature'."
        assert (error.error.param, error.error.code) == ("temprature", "unknown_parameter")

    def test_nested_ones_are_silent(self):
        messages = [{"role": "user", "content": "hi", "cache_control": {}}]
        body = msgspec.json.encode({"messages": messages, "stream_options": {"what": 1}})
        assert decode_request(body, ChatCompletionRequest, is_strict=True).ignored == ()

    def test_a_value_that_looks_like_the_error(self):
        text = "Object contains unknown field `x`"
        assert refusal(encoded(verbosity=text)).error.param == "verbosity"

    def test_a_long_body(self):
        decoded = decode_request(encoded(temprature=1, prompt_text=LONG), ChatCompletionRequest)
        assert decoded.ignored == ("temprature", "prompt_text")

    def test_too_many_of_them_are_refused(self):
        fields = b",".join(b'"%d":0' % i for i in range(MAX_COLONS))
        error = refusal(b'{"messages":[{"role":"user","content":""}],' + fields + b"}")
        assert (error.status, error.error.param) == (400, "0")


class TestSizes:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("chat_template_kwargs", {"a": [[]] * 100_000}),
            ("tools", [{"type": "function", "function": {"name": "f", "description": LONG * 65}}]),
            ("allowed_token_ids", [123_456_789] * 900_000),
            ("custom_params", [LONG]),
            ("user", LONG),
        ],
    )
    def test_a_field_with_too_many_bytes(self, name, value):
        body = encoded(**{name: value})
        error = refusal(body)
        size, most = len(msgspec.json.encode(value)), field_bytes(name)
        assert error.status == 413
        assert error.error.param == name
        assert error.error.message == f"Invalid '{name}': it has {size} bytes; the limit is {most}."

    def test_prompts_are_as_long_as_the_body(self):
        messages = [{"role": "user", "content": LONG * 80}]
        request = decode_request(msgspec.json.encode({"messages": messages}), ChatCompletionRequest)
        assert len(request.request.messages[0].content) == len(LONG) * 80

    @pytest.mark.parametrize(
        ("prompt", "found", "most"),
        [
            (b"[" + b"[]," * MAX_CONTAINERS + b"[]]", MAX_CONTAINERS + 3, MAX_CONTAINERS),
            (b"[" + b"0," * (MAX_COMMAS + 1) + b"0]", MAX_COMMAS + 1, MAX_COMMAS),
        ],
    )
    def test_too_many_values(self, prompt, found, most):
        error = refusal(b'{"prompt":' + prompt + b"}", CompletionRequest)
        assert error.status == 413
        assert str(found) in error.error.message
        assert str(most) in error.error.message

    @pytest.mark.parametrize("num", [MAX_CONTAINERS, MAX_SCANNED])
    def test_too_deep_is_not_too_large(self, num):
        error = refusal(b'{"tools":' + b"[" * num + b"]" * num + b"}")
        assert error.status == (413 if num == MAX_SCANNED else 400)

    def test_one_key_again_and_again(self):
        """The decoder holds the interpreter lock for all of them."""
        error = refusal(b"{" + b'"n":1,' * MAX_KEYS + b'"messages":[]}')
        assert error.status == 413
        assert f"{MAX_KEYS + 1} keys" in error.error.message
        assert str(MAX_KEYS) in error.error.message

    @pytest.mark.parametrize("text", ["12:34:56 " * MAX_KEYS, '"' * (2 * MAX_KEYS + 2)])
    def test_a_text_with_as_many_colons_or_quotation_marks(self, text):
        body = msgspec.json.encode({"messages": [{"role": "user", "content": text}]})
        assert decode_request(body, ChatCompletionRequest).request.messages[0].content == text

    def test_real_agents_fit(self):
        """129 tools of 60 kB in all, and a prompt of 100,000 tokens."""
        parameters = {"type": "object", "properties": {"path": {"type": "string"}}}
        tools = [
            {
                "type": "function",
                "function": {
                    "name": f"tool_{i}",
                    "description": "Does something useful. " * 16,
                    "parameters": parameters,
                },
            }
            for i in range(129)
        ]
        text = 'def f(x): return {"a": [x, 1]}\n' * 15_000
        body = msgspec.json.encode(
            {"messages": [{"role": "user", "content": text}], "tools": tools, "keep_alive": 5}
        )
        decoded = decode_request(body, ChatCompletionRequest)
        assert len(decoded.request.tools) == 129
        assert decoded.ignored == ("keep_alive",)

    def test_a_large_body_with_errors(self):
        assert refusal(encoded(user=LONG)[:-2]).error.message.startswith("The body is not valid")
        assert gc.isenabled()


def test_a_byte_order_mark_is_ignored():
    body = b"\xef\xbb\xbf" + encoded(temprature=1)
    assert decode_request(body, ChatCompletionRequest).ignored == ("temprature",)
    assert refusal(b"\xef\xbb\xbf" * 2 + encoded()).status == 400
