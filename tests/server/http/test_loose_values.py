"""What is written loosely is read as the types want it, and nothing else changes."""

from __future__ import annotations

import msgspec
import pytest

from schemas.anthropic import MessagesRequest
from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest
from schemas.embeddings import EmbeddingRequest
from schemas.generate import GenerateRequest
from schemas.ollama import OllamaChatRequest
from schemas.responses_request import ResponsesRequest
from schemas.tokenize import DetokenizeRequest
from server.http.decoding import decode_request
from server.http.errors import APIError
from server.http.loose_values import strict_form
from tests.schemas.conftest import BODIES

USER = [{"role": "user", "content": "4.0"}]


def decoded(type_, body):
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return decode_request(data, type_).request


def completion(fields):
    return decoded(CompletionRequest, b'{"prompt": "a", ' + fields + b"}")


def refusal(type_, body):
    with pytest.raises(APIError) as caught:
        decoded(type_, body)
    return caught.value.error


class TestWholeNumbers:
    @pytest.mark.parametrize(
        ("text", "number"),
        [
            (b"4.0", 4),
            (b"1e1", 10),
            (b"1.5E+1", 15),
            (b"400e-2", 4),
            (b"-1.0", -1),
            (b"-0.0", 0),
            (b"9007199254740993.0", 9007199254740993),
            (b"9223372036854775807.000", 2**63 - 1),
        ],
    )
    def test_are_exact(self, text, number):
        request = completion(b'"seed": ' + text)
        assert (request.seed, type(request.seed)) == (number, int)

    @pytest.mark.parametrize(
        "text", [b"4.5", b"1e-1", b"4.0000000000000000001", b'"4"', b"true", b"1e99", b"1e-999999"]
    )
    def test_others_are_refused_by_name(self, text):
        body = b'{"prompt": "a", "seed": ' + text + b"}"
        assert refusal(CompletionRequest, body).param == "seed"

    @pytest.mark.parametrize(
        ("type_", "fields", "path"),
        [
            (ChatCompletionRequest, {"messages": USER, "max_tokens": 4.0}, "max_tokens"),
            (ResponsesRequest, {"model": "m", "max_output_tokens": 4.0}, "max_output_tokens"),
            (MessagesRequest, {"messages": USER, "max_tokens": 4.0}, "max_tokens"),
            (EmbeddingRequest, {"input": "a", "dimensions": 4.0}, "dimensions"),
            (GenerateRequest, {"prompt": "a", "max_new_tokens": 4.0}, "max_new_tokens"),
            (OllamaChatRequest, {"options": {"num_predict": 4.0}}, "options.num_predict"),
        ],
    )
    def test_everywhere(self, type_, fields, path):
        value = decoded(type_, fields | {"unknown": 1})
        for name in path.split("."):
            value = getattr(value, name)
        assert (value, type(value)) == (4, int)
        wrong = msgspec.json.encode(fields).replace(b"4.0", b"4.5")
        assert refusal(type_, wrong).param == path

    def test_nested_ones(self):
        thinking = {"type": "enabled", "budget_tokens": 2e3}
        request = decoded(
            MessagesRequest, {"messages": USER, "max_tokens": 1, "thinking": thinking}
        )
        assert request.thinking.budget_tokens == 2000

    def test_token_ids(self):
        assert completion(b'"prompt": [1.0, 2, [3.0]]').prompt == [1, 2, [3]]
        assert decoded(DetokenizeRequest, {"tokens": [1.0, 2]}).tokens == [1, 2]

    def test_numbers_of_schemas_arguments_and_metadata_stay(self):
        schema = {"const": 4.0, "multipleOf": 1e1}
        function = {"name": "f", "parameters": schema}
        call = {"id": "c", "function": {"name": "f", "arguments": {"x": 4.0}}}
        body = {
            "max_tokens": 4.0,
            "messages": [*USER, {"role": "assistant", "tool_calls": [call]}],
            "tools": [{"type": "function", "function": function}],
            "metadata": {"a": 4.0, "b": 2**63},
            "logit_bias": {"1": 4.0},
        }
        request = decoded(ChatCompletionRequest, body)
        assert request.max_tokens == 4
        [message] = request.messages[1:]
        for value in (
            request.tools[0].function.parameters["const"],
            message.tool_calls[0].function.arguments["x"],
            request.metadata["a"],
        ):
            assert (value, type(value)) == (4.0, float)
        assert request.metadata["b"] == 2**63


class TestEmptyValues:
    @pytest.mark.parametrize(
        "fields",
        [
            {"stop": [""]},
            {"stop": ["", ""]},
            {"bad_words": [""]},
            {"logit_bias": []},
            {"logit_bias": ""},
            {"temperature": ""},
            {"seed": []},
            {"guided_choice": []},
            {"allowed_token_ids": []},
            {"response_format": ""},
            {"response_format": []},
            {"structured_outputs": ""},
            {"truncation_side": ""},
            {"xtc_probability": ""},
        ],
    )
    def test_are_not_given(self, fields):
        [name] = fields
        request = decoded(CompletionRequest, {"prompt": "a"} | fields)
        assert not getattr(request, name)

    def test_beside_others(self):
        request = decoded(CompletionRequest, {"prompt": "", "stop": ["", "x"], "seed": ""})
        assert (request.prompt, request.stop, request.seed) == ("", ["x"], None)
        options = {"stop": ["", "x"], "seed": "", "foo": 1}
        assert decoded(OllamaChatRequest, {"options": options}).options.stop == ["x"]

    def test_that_are_values_stay(self):
        choice = {"structured_outputs": {"choice": ["", "a"]}, "seed": ""}
        assert decoded(CompletionRequest, choice).structured_outputs.choice == ["", "a"]

    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"max_tokens": ""}, "max_tokens"),
            ({"stream": ""}, "stream"),
            ({"cache_salt": ""}, "cache_salt"),
            ({"temperature": " "}, "temperature"),
            ({"logit_bias": [[1, 2]]}, "logit_bias"),
            ({"allowed_token_ids": [""]}, "allowed_token_ids[0]"),
            ({"temperature": {}}, "temperature"),
        ],
    )
    def test_others_are_refused_by_name(self, fields, param):
        assert refusal(CompletionRequest, {"prompt": "a"} | fields).param == param


@pytest.mark.parametrize(("type_", "body"), BODIES.items())
def test_a_strict_body_is_left_alone(type_, body):
    assert strict_form(msgspec.json.encode(body), type_) is None
