"""Ollama's API: answers (Ollama API reference). Durations are nanoseconds."""

from typing import Any

from msgspec import UNSET, UnsetType

from schemas.base import ResponseModel
from schemas.logprobs import TokenLogprob


class OllamaCalledFunction(ResponseModel, frozen=True, kw_only=True):
    """A call. `arguments` is a JSON object."""

    index: int
    name: str
    arguments: Any


class OllamaAnswerCall(ResponseModel, frozen=True, kw_only=True):
    """A call of an answer."""

    id: str
    function: OllamaCalledFunction


class OllamaAnswerMessage(ResponseModel, frozen=True, kw_only=True):
    """A message, or a piece of one."""

    role: str = "assistant"
    content: str = ""
    thinking: str | UnsetType = UNSET
    tool_calls: list[OllamaAnswerCall] | UnsetType = UNSET


class OllamaAnswer(ResponseModel, frozen=True, kw_only=True):
    """What both answers have. Counts and durations are in the last line only.

    So are `warnings`, which name keywords of schemas that are not enforced.
    """

    model: str
    created_at: str
    done: bool
    done_reason: str | UnsetType = UNSET
    total_duration: int | UnsetType = UNSET
    load_duration: int | UnsetType = UNSET
    prompt_eval_count: int | UnsetType = UNSET
    prompt_eval_duration: int | UnsetType = UNSET
    eval_count: int | UnsetType = UNSET
    eval_duration: int | UnsetType = UNSET
    logprobs: list[TokenLogprob] | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET


class OllamaChatAnswer(OllamaAnswer, frozen=True, kw_only=True):
    """An answer of /api/chat, or a line of its stream."""

    message: OllamaAnswerMessage


class OllamaGenerateAnswer(OllamaAnswer, frozen=True, kw_only=True):
    """An answer of /api/generate, or a line of its stream."""

    response: str
    thinking: str | UnsetType = UNSET


class OllamaEmbeddings(ResponseModel, frozen=True, kw_only=True):
    """The vectors, in the order of the texts."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int = 0
    prompt_eval_count: int


class OllamaEmbedding(ResponseModel, frozen=True, kw_only=True):
    """The vector of one text."""

    embedding: list[float]


class OllamaError(ResponseModel, frozen=True, kw_only=True):
    """The body of an error response, and the last line of a stream that fails."""

    error: str


OLLAMA_VERSION = "0.12.6"
"""The version of Ollama whose API this is. Clients ask for a least version."""


class OllamaVersion(ResponseModel, frozen=True, kw_only=True):
    """The version of Ollama's API that this server follows."""

    version: str


class ModelDetails(ResponseModel, frozen=True, kw_only=True):
    """Facts about a model. What the server does not know is empty."""

    parent_model: str = ""
    format: str
    family: str
    families: list[str]
    parameter_size: str = ""
    quantization_level: str


class LocalModel(ResponseModel, frozen=True, kw_only=True):
    """A model that can be used. `size` is in bytes; 0: not known."""

    name: str
    model: str
    modified_at: str
    size: int = 0
    digest: str
    details: ModelDetails


class LocalModels(ResponseModel, frozen=True, kw_only=True):
    """The served model."""

    models: list[LocalModel]


class RunningModel(ResponseModel, frozen=True, kw_only=True):
    """A model that is loaded."""

    name: str
    model: str
    size: int = 0
    digest: str
    details: ModelDetails
    expires_at: str
    size_vram: int = 0
    context_length: int


class RunningModels(ResponseModel, frozen=True, kw_only=True):
    """The served model."""

    models: list[RunningModel]


class ShownModel(ResponseModel, frozen=True, kw_only=True):
    """What a client may want to know before it uses a model."""

    modelfile: str = ""
    parameters: str = ""
    template: str
    details: ModelDetails
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str
