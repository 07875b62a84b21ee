"""Encoded responses, byte for byte."""

from typing import get_args, get_type_hints

import msgspec
import pytest

from schemas.chat import ChatChoice, ChatCompletion, ChatMessage
from schemas.chat_chunk import (
    ChatChunkChoice,
    ChatCompletionChunk,
    ChatDelta,
    FunctionCallDelta,
    ToolCallDelta,
)
from schemas.completions import Completion, CompletionChoice
from schemas.errors import ErrorObject, ErrorResponse
from schemas.generate import GenerateResponse
from schemas.health import HealthResponse
from schemas.logprobs import (
    ChatLogprobs,
    CompletionLogprobs,
    PromptLogprob,
    TokenLogprob,
    TopLogprob,
)
from schemas.models import Model, ModelList
from schemas.tokenize import DetokenizeResponse, TokenizeResponse
from schemas.tools import FunctionCall, ToolCall
from schemas.usage import CompletionTokensDetails, PromptTokensDetails, Usage

USAGE = Usage(prompt_tokens=3, completion_tokens=2, total_tokens=5)
HEAD = {"created": 1700000000, "model": "m", "system_fingerprint": "fp_1"}


def chunk(choices, **fields):
    return ChatCompletionChunk(id="chatcmpl-1", **HEAD, choices=choices, **fields)


CASES = [
    (
        ChatCompletion(
            id="chatcmpl-1",
            **HEAD,
            choices=[ChatChoice(index=0, message=ChatMessage(content="hé"), finish_reason="stop")],
            usage=USAGE,
        ),
        (
            '{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m",'
            '"system_fingerprint":"fp_1","choices":[{"index":0,"message":{"role":"assistant",'
            '"content":"hé","refusal":null},"logprobs":null,"finish_reason":"stop"}],'
            '"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}'
        ),
    ),
    (
        ChatMessage(
            content=None,
            reasoning_content="r",
            reasoning="r",
            tool_calls=[ToolCall(id="call_1", function=FunctionCall(name="f", arguments="{}"))],
        ),
        (
            '{"role":"assistant","content":null,"refusal":null,"reasoning_content":"r",'
            '"reasoning":"r","tool_calls":[{"id":"call_1","type":"function",'
            '"function":{"name":"f","arguments":"{}"}}]}'
        ),
    ),
    (
        ChatChoice(
            index=1,
            message=ChatMessage(content=""),
            logprobs=ChatLogprobs(
                content=[
                    TokenLogprob(
                        token="\\xf0",
                        logprob=-9999.0,
                        bytes=[240],
                        top_logprobs=[TopLogprob(token="a", logprob=-0.5, bytes=[97])],
                    )
                ]
            ),
            finish_reason="length",
            stop_reason=None,
            token_ids=[7],
        ),
        (
            '{"index":1,"message":{"role":"assistant","content":"","refusal":null},"logprobs":'
            '{"content":[{"token":"\\\\xf0","logprob":-9999.0,"bytes":[240],"top_logprobs":'
            '[{"token":"a","logprob":-0.5,"bytes":[97]}]}],"refusal":null},'
            '"finish_reason":"length","stop_reason":null,"token_ids":[7]}'
        ),
    ),
    (
        chunk(
            [ChatChunkChoice(index=0, delta=ChatDelta(role="assistant", content="", refusal=None))]
        ),
        (
            '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m",'
            '"system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"role":"assistant",'
            '"content":"","refusal":null},"logprobs":null,"finish_reason":null}]}'
        ),
    ),
    (
        chunk([ChatChunkChoice(index=0, delta=ChatDelta(), finish_reason="stop")], usage=None),
        (
            '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m",'
            '"system_fingerprint":"fp_1","choices":[{"index":0,"delta":{},"logprobs":null,'
            '"finish_reason":"stop"}],"usage":null}'
        ),
    ),
    (
        chunk([], usage=USAGE),
        (
            '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m",'
            '"system_fingerprint":"fp_1","choices":[],'
            '"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}'
        ),
    ),
    (
        ChatDelta(
            tool_calls=[
                ToolCallDelta(
                    index=0,
                    id="call_1",
                    type="function",
                    function=FunctionCallDelta(name="f", arguments=""),
                )
            ]
        ),
        (
            '{"tool_calls":[{"index":0,"id":"call_1","type":"function",'
            '"function":{"name":"f","arguments":""}}]}'
        ),
    ),
    (
        ToolCallDelta(index=0, function=FunctionCallDelta(arguments='{"a"')),
        '{"index":0,"function":{"arguments":"{\\"a\\""}}',
    ),
    (
        Completion(
            id="cmpl-1",
            **HEAD,
            choices=[
                CompletionChoice(
                    index=0,
                    text="ab",
                    logprobs=CompletionLogprobs(
                        tokens=["a", "b"],
                        token_logprobs=[None, -0.5],
                        top_logprobs=[None, {"b": -0.5}],
                        text_offset=[0, 1],
                    ),
                    finish_reason="length",
                    prompt_logprobs=[
                        None,
                        {7: PromptLogprob(logprob=-1.0, rank=1, decoded_token="b")},
                    ],
                )
            ],
            usage=USAGE,
        ),
        (
            '{"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"m",'
            '"system_fingerprint":"fp_1","choices":[{"index":0,"text":"ab","logprobs":'
            '{"tokens":["a","b"],"token_logprobs":[null,-0.5],"top_logprobs":[null,{"b":-0.5}],'
            '"text_offset":[0,1]},"finish_reason":"length","prompt_logprobs":[null,'
            '{"7":{"logprob":-1.0,"rank":1,"decoded_token":"b"}}]}],'
            '"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}'
        ),
    ),
    (
        CompletionChoice(index=0, text="a", finish_reason=None),
        '{"index":0,"text":"a","logprobs":null,"finish_reason":null}',
    ),
    (
        Usage(
            prompt_tokens=3,
            completion_tokens=2,
            total_tokens=5,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=0),
            completion_tokens_details=CompletionTokensDetails(reasoning_tokens=1),
        ),
        (
            '{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,'
            '"prompt_tokens_details":{"cached_tokens":0},'
            '"completion_tokens_details":{"reasoning_tokens":1}}'
        ),
    ),
    (
        ErrorResponse(error=ErrorObject(message="no", type="invalid_request_error")),
        '{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}',
    ),
    (
        ModelList(data=[Model(id="a/b", created=1, owned_by="roseinfer", max_model_len=64)]),
        (
            '{"object":"list","data":[{"id":"a/b","object":"model","created":1,'
            '"owned_by":"roseinfer","max_model_len":64}]}'
        ),
    ),
    (GenerateResponse(text="x"), '{"text":"x"}'),
    (
        TokenizeResponse(count=1, max_model_len=64, tokens=[5]),
        '{"count":1,"max_model_len":64,"tokens":[5],"token_strs":null}',
    ),
    (DetokenizeResponse(prompt="x"), '{"prompt":"x"}'),
    (HealthResponse(status="ok"), '{"status":"ok"}'),
    (HealthResponse(status="failed", reason="x"), '{"status":"failed","reason":"x"}'),
]


@pytest.mark.parametrize(("value", "text"), CASES, ids=lambda case: type(case).__name__)
def test_encoding_is_exact(value, text):
    assert msgspec.json.encode(value).decode() == text


@pytest.mark.parametrize(("value", "text"), CASES, ids=lambda case: type(case).__name__)
def test_decoding_restores_the_value(value, text):
    assert msgspec.json.decode(text, type=type(value)) == value


def test_optional_keys_are_missing_by_default(response):
    hints = get_type_hints(response)
    for field in msgspec.structs.fields(response):
        may_be_missing = msgspec.UnsetType in get_args(hints[field.name])
        assert may_be_missing == (field.default is msgspec.UNSET), field.name
