"""The official SDK's types accept our responses in pydantic's strict mode."""

import msgspec
import pytest
from openai.types import Completion, CompletionUsage, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from schemas import chat, chat_chunk, completions, logprobs, models, tools, usage

ENTRY = logprobs.TokenLogprob(
    token="a",
    logprob=-0.5,
    bytes=[97],
    top_logprobs=[logprobs.TopLogprob(token="a", logprob=-0.5, bytes=None)],
)
USAGE = usage.Usage(
    prompt_tokens=3,
    completion_tokens=2,
    total_tokens=5,
    prompt_tokens_details=usage.PromptTokensDetails(cached_tokens=1),
    completion_tokens_details=usage.CompletionTokensDetails(reasoning_tokens=0),
)
CALL = tools.ToolCall(id="call_1", function=tools.FunctionCall(name="f", arguments="{}"))
HEAD = {"created": 1700000000, "model": "m"}


def read(sdk_type, value):
    """Encode, then validate strictly as the SDK's type."""
    return sdk_type.model_validate(msgspec.json.decode(msgspec.json.encode(value)), strict=True)


def chat_choice(**fields):
    message = fields.pop("message", chat.ChatMessage(content="hi"))
    return chat.ChatChoice(**{"index": 0, "message": message, "finish_reason": "stop"} | fields)


@pytest.mark.parametrize(
    "choice",
    [
        chat_choice(),
        chat_choice(logprobs=logprobs.ChatLogprobs(content=[ENTRY]), stop_reason="x"),
        chat_choice(
            message=chat.ChatMessage(content=None, tool_calls=[CALL]), finish_reason="tool_calls"
        ),
        chat_choice(message=chat.ChatMessage(content="x", reasoning_content="r", reasoning="r")),
        chat_choice(finish_reason="length", token_ids=[1]),
    ],
)
def test_chat_completion(choice):
    value = chat.ChatCompletion(
        id="chatcmpl-1", **HEAD, choices=[choice], usage=USAGE, service_tier="default"
    )
    parsed = read(ChatCompletion, value)
    assert parsed.choices[0].message.role == "assistant"
    assert parsed.choices[0].finish_reason == choice.finish_reason
    assert parsed.usage.prompt_tokens_details.cached_tokens == 1


@pytest.mark.parametrize(
    "delta",
    [
        chat_chunk.ChatDelta(role="assistant", content="", refusal=None),
        chat_chunk.ChatDelta(content="x"),
        chat_chunk.ChatDelta(reasoning_content="x", reasoning="x"),
        chat_chunk.ChatDelta(
            tool_calls=[
                chat_chunk.ToolCallDelta(
                    index=0,
                    id="call_1",
                    type="function",
                    function=chat_chunk.FunctionCallDelta(name="f", arguments=""),
                )
            ]
        ),
        chat_chunk.ChatDelta(
            tool_calls=[
                chat_chunk.ToolCallDelta(
                    index=0, function=chat_chunk.FunctionCallDelta(arguments="{}")
                )
            ]
        ),
        chat_chunk.ChatDelta(),
    ],
)
@pytest.mark.parametrize("totals", [msgspec.UNSET, None, USAGE], ids=["absent", "null", "given"])
def test_chat_chunk(delta, totals):
    choice = chat_chunk.ChatChunkChoice(
        index=0, delta=delta, logprobs=logprobs.ChatLogprobs(content=[ENTRY])
    )
    value = chat_chunk.ChatCompletionChunk(id="chatcmpl-1", **HEAD, choices=[choice], usage=totals)
    parsed = read(ChatCompletionChunk, value)
    assert ("usage" in parsed.model_fields_set) == (totals is not msgspec.UNSET)
    given = set(msgspec.to_builtins(delta))
    assert given == set(parsed.choices[0].delta.model_dump(exclude_unset=True))


def test_usage_chunk():
    value = chat_chunk.ChatCompletionChunk(id="chatcmpl-1", **HEAD, choices=[], usage=USAGE)
    assert read(ChatCompletionChunk, value).usage.total_tokens == 5


def test_completion():
    four_lists = logprobs.CompletionLogprobs(
        tokens=["a"], token_logprobs=[-0.5], top_logprobs=[{"a": -0.5}], text_offset=[0]
    )
    choice = completions.CompletionChoice(
        index=0, text="a", logprobs=four_lists, finish_reason="stop", stop_reason=None
    )
    value = completions.Completion(id="cmpl-1", **HEAD, choices=[choice], usage=USAGE)
    assert read(Completion, value).choices[0].logprobs.text_offset == [0]


def test_usage():
    assert read(CompletionUsage, USAGE).completion_tokens_details.reasoning_tokens == 0


def test_model():
    value = models.Model(id="m", created=1, owned_by="roseinfer", max_model_len=64)
    assert read(Model, value).id == "m"
