"""Litestar and msgspec can describe the types; msgspec keeps all limits."""

import json

import msgspec
from litestar import Litestar, post
from litestar.params import JSONBody

from schemas.chat import ChatCompletion, ChatCompletionRequest
from schemas.chat_chunk import ChatCompletionChunk
from schemas.completions import Completion, CompletionRequest
from schemas.errors import ErrorResponse
from schemas.tokenize import DetokenizeRequest, TokenizeRequest


@post("/chat", sync_to_thread=False)
def answer_chat(data: JSONBody[ChatCompletionRequest]) -> ChatCompletion:
    raise NotImplementedError(data)


@post("/chunk", sync_to_thread=False)
def answer_chunk(data: JSONBody[TokenizeRequest]) -> ChatCompletionChunk:
    raise NotImplementedError(data)


@post("/completion", sync_to_thread=False)
def answer_completion(data: JSONBody[CompletionRequest]) -> Completion:
    raise NotImplementedError(data)


@post("/error", sync_to_thread=False)
def answer_error(data: JSONBody[DetokenizeRequest]) -> ErrorResponse:
    raise NotImplementedError(data)


def test_litestar_describes_the_types():
    app = Litestar([answer_chat, answer_chunk, answer_completion, answer_error])
    document = json.loads(json.dumps(app.openapi_schema.to_schema()))
    components = document["components"]["schemas"]
    chat = components["ChatCompletionRequest"]
    assert chat["required"] == ["messages"]
    assert set(chat["properties"]) == set(ChatCompletionRequest.__struct_fields__)
    assert chat["properties"]["n"]["maximum"] == 128
    assert components["UserMessage"]["properties"]["role"]["const"] == "user"
    assert set(components["ChatCompletionChunk"]["required"]) == {
        "id",
        "created",
        "model",
        "choices",
    }


def test_msgspec_describes_every_struct(any_struct):
    assert json.dumps(msgspec.json.schema(any_struct))


def test_limits_are_in_the_description():
    _, components = msgspec.json.schema_components([ChatCompletionRequest])
    properties = components["ChatCompletionRequest"]["properties"]
    temperature, null = properties["temperature"]["anyOf"]
    assert (temperature["minimum"], temperature["maximum"]) == (0, 2)
    assert null == {"type": "null"}
    assert properties["messages"]["items"]["discriminator"]["propertyName"] == "role"
