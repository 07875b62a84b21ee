"""Ollama's API: requests (Ollama API reference). Streaming is the default."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Raw

from schemas.base import RequestModel
from schemas.limits import (
    INT32_MAX,
    INT64_MAX,
    MAX_CALLS,
    MAX_MESSAGES,
    MAX_NUMBER,
    MAX_PROMPTS,
)
from schemas.scalars import Int64, JsonObject, Label, Number, StopStrings, Text
from schemas.tools import Tools

Format: TypeAlias = Literal["", "json"] | JsonObject
"""Any JSON object, or a JSON Schema that the text must match."""

Think: TypeAlias = bool | Literal["", "low", "medium", "high", "max"]

Images: TypeAlias = Annotated[list[Any], Meta(max_length=MAX_CALLS)]
"""Not read, because the server refuses them."""

KeepAlive: TypeAlias = Number | Label
"""Accepted without effect: the model stays loaded."""


class OllamaOptions(RequestModel, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sampling and loading. The server refuses what has an effect that it cannot have."""

    temperature: Annotated[float, Meta(ge=0, le=MAX_NUMBER, description="0: greedy.")] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=INT32_MAX)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: Int64 | None = None
    num_predict: (
        Annotated[
            int, Meta(ge=-2, le=INT64_MAX, description="Maximum of tokens; below 1: no limit.")
        ]
        | None
    ) = None
    stop: StopStrings | None = None
    repeat_penalty: Annotated[float, Meta(ge=0.001, le=1000, description="1: off.")] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None

    # Beside a penalty: 0 turns it off, others than -1 are ignored and named.
    repeat_last_n: Int64 | None = None

    # Refused, unless they have no effect.
    typical_p: Number | None = None
    tfs_z: Number | None = None
    mirostat: Int64 | None = None
    mirostat_tau: Any = None
    mirostat_eta: Any = None

    # Accepted without effect: the model is loaded.
    num_ctx: Int64 | None = None
    num_keep: Int64 | None = None
    num_batch: Int64 | None = None
    num_gpu: Int64 | None = None
    main_gpu: Int64 | None = None
    num_thread: Int64 | None = None
    numa: bool | None = None
    low_vram: bool | None = None
    f16_kv: bool | None = None
    logits_all: bool | None = None
    vocab_only: bool | None = None
    use_mmap: bool | None = None
    use_mlock: bool | None = None
    embedding_only: bool | None = None
    penalize_newline: bool | None = None


class OllamaFunctionCall(RequestModel, frozen=True, kw_only=True):
    """A call of an earlier answer. `arguments` is a JSON object."""

    name: Label
    arguments: Raw


class OllamaToolCall(RequestModel, frozen=True, kw_only=True):
    """A call of an earlier answer, perhaps with an id."""

    id: Label | None = None
    function: OllamaFunctionCall


class OllamaMessage(RequestModel, frozen=True, kw_only=True):
    """One message. A result of a call names its tool, or its call."""

    role: Literal["system", "user", "assistant", "tool"]
    content: Text | None = None
    thinking: Text | None = None
    images: Images | None = None
    tool_calls: Annotated[list[OllamaToolCall], Meta(max_length=MAX_CALLS)] | None = None
    tool_name: Label | None = None
    tool_call_id: Label | None = None


class ModelFields(RequestModel, frozen=True, kw_only=True):
    """The model of a request: its name, with or without the tag `latest`."""

    model: Label | None = None


class GenerationFields(ModelFields, frozen=True, kw_only=True):
    """Fields of both ways to generate."""

    stream: Annotated[bool, Meta(description="Default: true.")] | None = None
    format: Format | None = None
    options: OllamaOptions | None = None
    think: Think | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    keep_alive: KeepAlive | None = None
    truncate: Annotated[bool, Meta(description="Accepted without effect.")] | None = None
    shift: Annotated[bool, Meta(description="Accepted without effect.")] | None = None


class OllamaChatRequest(GenerationFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A conversation to continue. Without messages: whether the model is loaded."""

    messages: Annotated[list[OllamaMessage], Meta(max_length=MAX_MESSAGES)] | None = None
    tools: Tools | None = None


class OllamaGenerateRequest(
    GenerationFields, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A prompt to answer, or with `raw` to continue. Without one: whether the model is loaded."""

    prompt: Text | None = None
    system: Text | None = None
    suffix: Text | None = None
    raw: bool | None = None

    # Refused, unless empty.
    images: Images | None = None
    template: Text | None = None
    context: Annotated[list[Int64], Meta(max_length=INT32_MAX)] | None = None
    width: Int64 | None = None
    height: Int64 | None = None
    steps: Int64 | None = None


class EmbedRequest(ModelFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Texts to turn into vectors. Without one: whether the model is loaded."""

    input: Text | Annotated[list[Text], Meta(max_length=MAX_PROMPTS)] | None = None
    truncate: Annotated[bool, Meta(description="false: refuse longer texts.")] | None = None
    dimensions: Annotated[int, Meta(ge=1, le=INT32_MAX)] | None = None
    options: OllamaOptions | None = None
    keep_alive: KeepAlive | None = None


class OldEmbedRequest(ModelFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A text to turn into a vector. Without one: whether the model is loaded."""

    prompt: Text | None = None
    options: OllamaOptions | None = None
    keep_alive: KeepAlive | None = None


class ShowRequest(ModelFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model to describe. `name` is the older spelling of `model`."""

    name: Label | None = None
    verbose: bool | None = None
