"""POST /v1/embeddings: texts to a Job, in a worker thread, and its response."""

from __future__ import annotations

import base64
from uuid import uuid4

import msgspec
import numpy as np

from core.contract.errors import InvalidRequest
from core.contract.info import PoolingInfo
from schemas.embeddings import Embedding, EmbeddingList, EmbeddingRequest, InputUsage
from server.apis.pooling.job import (
    NewResponse,
    Vectors,
    fitting,
    pooling_of,
    text_ids,
    vector_job,
)
from server.generation.job import Job
from server.generation.model import ServedModel
from server.http.errors import invalid, unsupported, wrong_task
from server.translation.prompts import split_prompts
from server.workers.pools import checkpoint


def translate_embeddings(request: EmbeddingRequest, model: ServedModel) -> Job:
    """The job of the inputs. Raises InvalidRequest."""
    is_base64 = request.encoding_format == "base64"

    def new_response(vectors: Vectors, usage: InputUsage) -> EmbeddingList:
        data = [
            Embedding(index=i, embedding=_base64(one) if is_base64 else one.tolist())
            for i, one in enumerate(vectors)
        ]
        return EmbeddingList(data=data, model=model.name, usage=usage)

    return embedding_job(request, model, new_response, field="input")


def _base64(vector: Vectors) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def embedding_job(
    request: EmbeddingRequest, model: ServedModel, new_response: NewResponse, *, field: str
) -> Job:
    """Tokenize the inputs and check their lengths. Raises InvalidRequest.

    ``field`` is the name of the inputs on the wire. ``new_response`` gets vectors of the length
    that was asked for.
    """
    pooling, dimensions = pooling_of(model), request.dimensions
    if pooling.task != "embed":
        raise wrong_task("This model scores pairs of texts; it makes no embeddings.")
    _check_size(dimensions, pooling)
    before, given = _prompt_text(request.prompt_name, pooling), request.input
    if not given or (isinstance(given, list) and ("" in given or [] in given)):
        raise InvalidRequest(f"{field} must not be empty.", param=field, code="empty_array")
    items = split_prompts(given, field, noun="inputs")
    truncate, size = request.truncate_prompt_tokens, model.info.num_token_ids
    prompts: list[list[int]] = []
    for i, item in enumerate(items):
        checkpoint()
        param = f"{field}[{i}]" if len(items) > 1 else field
        if isinstance(item, str):
            ids = text_ids(item, model, truncate, param=param, before=before)
        else:  # ids are used as they are
            ids = fitting(item, model, truncate, param=param)
        if not 0 <= min(ids) <= max(ids) < size:
            raise invalid(param, f"{param} must hold token ids below {size}.")
        prompts.append(ids)

    def response_of_cut(vectors: Vectors, usage: InputUsage) -> msgspec.Struct:
        return new_response(_cut(vectors, dimensions, pooling), usage)

    return vector_job(f"embd-{uuid4().hex}", prompts, request, model, response_of_cut)


def _cut(vectors: Vectors, size: int | None, pooling: PoolingInfo) -> Vectors:
    """Vectors of ``size`` numbers, normalised again if the model does."""
    if size is None or size >= vectors.shape[1]:
        return vectors
    vectors = vectors[:, :size]
    if pooling.is_normalized:
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.maximum(norms, np.float32(1e-12))
    return vectors


def _check_size(wanted: int | None, pooling: PoolingInfo) -> None:
    if wanted is None or wanted == pooling.size:
        return
    sizes = pooling.sizes
    if sizes is None:
        raise unsupported(
            "dimensions",
            f"This model's vectors have {pooling.size} dimensions, and its checkpoint does not say "
            "that they can be cut. The operator can say it with --matryoshka-dimensions.",
        )
    if wanted > pooling.size or (sizes and wanted not in sizes):
        known = ", ".join(map(str, sizes)) if sizes else f"at most {pooling.size}"
        raise invalid(
            "dimensions", f"This model's vectors can have these dimensions: {known}; not {wanted}."
        )


def _prompt_text(name: str | None, pooling: PoolingInfo) -> str:
    """The text that begins every input."""
    name = name or pooling.default_prompt
    if name is None:
        return ""
    if name not in pooling.prompts:
        known = ", ".join(sorted(pooling.prompts)) or "none"
        raise invalid(
            "prompt_name", f"This model has no prompt of the name '{name[:64]}'; it has {known}."
        )
    return pooling.prompts[name]
