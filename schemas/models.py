"""GET /v1/models and /v1/models/{id} (OpenAI API reference, models)."""

from typing import Literal

from msgspec import UNSET, UnsetType

from schemas.base import ResponseModel


class Model(ResponseModel, frozen=True, kw_only=True):
    """The served model. `max_model_len` is its context length in tokens (vLLM)."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    root: str | UnsetType = UNSET
    parent: str | UnsetType | None = UNSET
    max_model_len: int | UnsetType = UNSET


class ModelList(ResponseModel, frozen=True, kw_only=True):
    """All served models."""

    object: Literal["list"] = "list"
    data: list[Model]
