"""POST /v1/embeddings: texts to a Job, in a worker thread, and the renderer."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from uuid import uuid4

import msgspec
import numpy as np

from core.contract.errors import InvalidRequest
from core.contract.info import PoolingInfo
from schemas.embeddings import Embedding, EmbeddingList, EmbeddingRequest, InputUsage
from server.apis.pooling.job import NOTHING, VectorRenderer, Vectors, fitting, pooling_of, text_ids
from server.generation.job import Job
from server.generation.model import ServedModel
from server.http.errors import invalid, unsupported, wrong_task
from server.translation.prompts import split_prompts
from server.workers.pools import checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingRenderer(VectorRenderer):
    """Vectors that are cut to ``size`` are normalised again if the model does."""

    model: str
    size: int | None
    is_normalized: bool
    is_base64: bool

    def _response(self, vectors: Vectors, usage: InputUsage) -> msgspec.Struct:
        data = [
            Embedding(index=i, embedding=self._encoded(vector))
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

    def _encoded(self, vector: Vectors) -> list[float] | str:
        if self.is_base64:
            return base64.b64encode(vector.astype("<f4").tobytes()).decode()
        numbers: list[float] = vector.tolist()
        return numbers


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
        raise wrong_task("This model scores pairs of texts; it makes no embeddings.")
    _check_size(request.dimensions, pooling)
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
    renderer = new_renderer(
        model=model.name,
        size=request.dimensions,
        is_normalized=pooling.is_normalized,
        is_base64=request.encoding_format == "base64",
    )
    return Job(
        id=f"embd-{uuid4().hex}",
        prompts=prompts,
        params=[NOTHING] * len(prompts),
        priority=request.priority or 0,
        renderer=renderer,
    )


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
