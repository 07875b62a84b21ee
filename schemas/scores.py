"""POST /v1/rerank (Jina's and Cohere's form) and POST /v1/score (vLLM's)."""

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from schemas.base import RequestModel, ResponseModel
from schemas.embeddings import InputUsage
from schemas.limits import INT32_MAX, MAX_PROMPTS
from schemas.scalars import Label, Priority, Text


class DocumentText(RequestModel, frozen=True, kw_only=True):
    """A document as an object."""

    text: Text


Texts: TypeAlias = Annotated[list[Text], Meta(min_length=1, max_length=MAX_PROMPTS)]
Truncation: TypeAlias = Annotated[
    int, Meta(ge=-1, le=INT32_MAX, description="Cut longer pairs; -1: to the context.")
]
Instruction: TypeAlias = Annotated[
    Text, Meta(description="What a match is, for models whose chat template shows it.")
]


class RerankRequest(RequestModel, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Documents to order by how well they answer a query."""

    query: Text
    documents: Annotated[list[Text | DocumentText], Meta(min_length=1, max_length=MAX_PROMPTS)]
    model: Label | None = None
    top_n: Annotated[int, Meta(ge=1, le=INT32_MAX)] | None = None
    return_documents: bool | None = None
    user: Label | None = None

    # Extensions.
    instruction: Instruction | None = None
    truncate_prompt_tokens: Truncation | None = None
    priority: Priority | None = None


class RankedDocument(ResponseModel, frozen=True, kw_only=True):
    """One document. `index` is its place in the request."""

    index: int
    relevance_score: float
    document: dict[str, str] | UnsetType = UNSET


class Ranking(ResponseModel, frozen=True, kw_only=True):
    """The best documents, best first."""

    id: str
    model: str
    results: list[RankedDocument]
    usage: InputUsage


class ScoreRequest(RequestModel, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pairs of texts: one with each of several, or as many with as many."""

    text_1: Text | Texts
    text_2: Text | Texts
    model: Label | None = None
    user: Label | None = None

    # Extensions.
    instruction: Instruction | None = None
    truncate_prompt_tokens: Truncation | None = None
    priority: Priority | None = None


class Score(ResponseModel, frozen=True, kw_only=True):
    """The score of one pair."""

    index: int
    object: Literal["score"] = "score"
    score: float


class ScoreList(ResponseModel, frozen=True, kw_only=True):
    """The scores, in the order of the pairs."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[Score]
    usage: InputUsage
