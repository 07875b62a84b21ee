"""translate_embeddings: texts to a Job. Runs in a worker thread.

EmbeddingRenderer: responses of POST /v1/embeddings.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from uuid import uuid4

import msgspec
import numpy as np

from core.contract.errors import InvalidRequest
from core.contract.info import PoolingInfo
from schemas.completions import Prompt
from schemas.embeddings import Embedding, EmbeddingList, EmbeddingRequest, InputUsage
from schemas.limits import MAX_PROMPTS
from server.admission.pools import checkpoint
from server.apis.pooling.job import fitting, pooling_job, pooling_of, text_ids
from server.generation.job import Job
from server.generation.model import ServedModel
from server.rendering.vectors import Vectors, WholeOnly


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingRenderer(WholeOnly):
    """See Renderer. Vectors that are cut to ``size`` are normalised again if the model does."""

    model: str
    size: int | None
    is_normalized: bool
    is_base64: bool

    def _response(self, vectors: Vectors, usage: InputUsage) -> msgspec.Struct:
        encode = _base64 if self.is_base64 else _floats
        data = [
            Embedding(index=i, embedding=encode(vector))
            for i, vector in enumerate(self._cut(vectors))
        ]
        return EmbeddingList(data=data, model=self.model, usage=usage)

    def _cut(self, vectors: Vectors) -> Vectors:
        """Vectors of the length that was asked for."""
        if self.size is None or self.size >= vectors.shape[1]:
            return vectors
        vectors = vectors[:, : self.size]
        if self.is_normalized:
            norms = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors = vectors / np.maximum(norms, np.float32(1e-12))
        return vectors


def _floats(vector: Vectors) -> list[float] | str:
    numbers: list[float] = vector.tolist()
    return numbers


def _base64(vector: Vectors) -> list[float] | str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def translate_embeddings(
    request: EmbeddingRequest,
    model: ServedModel,
    *,
    new_renderer: type[EmbeddingRenderer] = EmbeddingRenderer,
    field: str = "input",
) -> Job:
    """Tokenize the inputs and check their lengths. Raises InvalidRequest.

    ``field`` is the name of the inputs on the wire.
    """
    pooling = pooling_of(model)
    if pooling.task != "embed":
        raise InvalidRequest(
            "This model scores pairs of texts; it makes no embeddings.",
            param="model",
            code="unsupported_task",
        )
    _check_size(request.dimensions, pooling)
    before = _prompt_text(request.prompt_name, pooling)
    items = _items(request.input, field)
    prompts = [
        _tokens(item, before, request, model, f"{field}[{i}]" if len(items) > 1 else field)
        for i, item in enumerate(items)
    ]
    renderer = new_renderer(
        model=model.name,
        size=request.dimensions,
        is_normalized=pooling.is_normalized,
        is_base64=request.encoding_format == "base64",
    )
    id_ = f"embd-{uuid4().hex}"
    return pooling_job(prompts, renderer, response_id=id_, priority=request.priority)


def _check_size(wanted: int | None, pooling: PoolingInfo) -> None:
    if wanted is None or wanted == pooling.size:
        return
    sizes = pooling.sizes
    if sizes is None:
        raise InvalidRequest(
            f"This model's vectors have {pooling.size} dimensions, and its checkpoint does not say "
            "that they can be cut. The operator can say it with --matryoshka-dimensions.",
            param="dimensions",
            code="unsupported_parameter",
        )
    if wanted > pooling.size or (sizes and wanted not in sizes):
        known = ", ".join(map(str, sizes)) if sizes else f"at most {pooling.size}"
        raise InvalidRequest(
            f"This model's vectors can have these dimensions: {known}; not {wanted}.",
            param="dimensions",
            code="invalid_value",
        )


def _prompt_text(name: str | None, pooling: PoolingInfo) -> str:
    """The text that begins every input."""
    name = name or pooling.default_prompt
    if name is None:
        return ""
    if name not in pooling.prompts:
        known = ", ".join(sorted(pooling.prompts)) or "none"
        raise InvalidRequest(
            f"This model has no prompt of the name '{name[:64]}'; it has {known}.",
            param="prompt_name",
            code="invalid_value",
        )
    return pooling.prompts[name]


def _items(given: Prompt, field: str) -> list[str | list[int]]:
    """The inputs, each a text or a list of ids."""
    items = [given] if isinstance(given, str) else given
    if not items or "" in items or [] in items:
        raise InvalidRequest(f"{field} must not be empty.", param=field, code="empty_array")
    if all(isinstance(item, int) for item in items):
        return [items]  # type: ignore[list-item]
    if len({type(item) for item in items}) > 1:
        raise InvalidRequest(
            f"{field} must not mix texts and token ids.", param=field, code="invalid_value"
        )
    if len(items) > MAX_PROMPTS:
        raise InvalidRequest(
            f"{field} must hold at most {MAX_PROMPTS} inputs, not {len(items)}.",
            param=field,
            code="array_above_max_length",
        )
    return items  # type: ignore[return-value]


def _tokens(
    item: str | list[int], before: str, request: EmbeddingRequest, model: ServedModel, param: str
) -> list[int]:
    """Ids are used as they are. Texts begin with ``before`` and get the tokenizer's tokens."""
    checkpoint()
    truncate, info = request.truncate_prompt_tokens, model.info
    if isinstance(item, str):
        ids = text_ids(item, model, truncate, param=param, before=before)
    else:
        ids = fitting(item, model, truncate, param=param)
    if not 0 <= min(ids) <= max(ids) < info.num_token_ids:
        raise InvalidRequest(
            f"{param} must hold token ids below {info.num_token_ids}.",
            param=param,
            code="invalid_value",
        )
    return ids
