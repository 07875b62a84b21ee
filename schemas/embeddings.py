"""POST /v1/embeddings (OpenAI API reference, embeddings)."""

from typing import Annotated, Literal

from msgspec import Meta

from schemas.base import RequestModel, ResponseModel
from schemas.completions import Prompt
from schemas.limits import INT32_MAX
from schemas.scalars import Label, Priority


class EmbeddingRequest(RequestModel, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Texts to turn into vectors."""

    input: Annotated[
        Prompt, Meta(description="Text, texts, token ids or lists of token ids. Not empty.")
    ]
    model: Label | None = None
    encoding_format: (
        Annotated[
            Literal["float", "base64"],
            Meta(description="base64: the bytes of little-endian float32."),
        ]
        | None
    ) = None
    dimensions: (
        Annotated[
            int, Meta(ge=1, le=INT32_MAX, description="Length of the vectors, if the model has it.")
        ]
        | None
    ) = None
    user: Label | None = None

    # Extensions.
    prompt_name: (
        Annotated[Label, Meta(description="Name of one of the model's prompts, put before texts.")]
        | None
    ) = None
    truncate_prompt_tokens: (
        Annotated[
            int, Meta(ge=-1, le=INT32_MAX, description="Cut longer inputs; -1: to the context.")
        ]
        | None
    ) = None
    priority: Priority | None = None


class Embedding(ResponseModel, frozen=True, kw_only=True):
    """The vector of one input: numbers, or base64 text."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class InputUsage(ResponseModel, frozen=True, kw_only=True):
    """Counts of tokens. Both are the same: nothing is generated."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(ResponseModel, frozen=True, kw_only=True):
    """The vectors, in the order of the inputs."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: InputUsage
