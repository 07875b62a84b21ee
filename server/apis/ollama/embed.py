"""/api/embed and /api/embeddings: requests to jobs, in a worker thread, and the renderers."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import msgspec

from schemas.embeddings import EmbeddingRequest, InputUsage
from schemas.ollama import EmbedRequest, OldEmbedRequest
from schemas.ollama_answer import OllamaEmbedding, OllamaEmbeddings
from server.apis.pooling.embeddings import EmbeddingRenderer, translate_embeddings
from server.apis.pooling.job import Vectors
from server.generation.job import Job
from server.generation.model import ServedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class OllamaEmbeddingsRenderer(EmbeddingRenderer):
    """The vectors of all texts."""

    start: int = field(default_factory=time.perf_counter_ns)

    def _response(self, vectors: Vectors, usage: InputUsage) -> msgspec.Struct:
        return OllamaEmbeddings(
            model=self.model,
            embeddings=self._cut(vectors).tolist(),
            total_duration=time.perf_counter_ns() - self.start,
            prompt_eval_count=usage.prompt_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OllamaEmbeddingRenderer(EmbeddingRenderer):
    """The vector of the only text."""

    def _response(self, vectors: Vectors, _usage: InputUsage) -> msgspec.Struct:
        return OllamaEmbedding(embedding=self._cut(vectors)[0].tolist())


CUT = -1
"""``truncate_prompt_tokens``: longer texts are cut to the context, which is Ollama's default."""


def translate_embed(request: EmbedRequest, model: ServedModel) -> Job:
    """The job of some texts. Raises InvalidRequest."""
    texts = request.input or ""
    same = EmbeddingRequest(
        input=texts if isinstance(texts, str) else [*texts],
        dimensions=request.dimensions,
        truncate_prompt_tokens=None if request.truncate is False else CUT,
    )
    return translate_embeddings(same, model, new_renderer=OllamaEmbeddingsRenderer)


def translate_old_embed(request: OldEmbedRequest, model: ServedModel) -> Job:
    """The job of one text. Raises InvalidRequest."""
    same = EmbeddingRequest(input=request.prompt or "", truncate_prompt_tokens=CUT)
    return translate_embeddings(same, model, new_renderer=OllamaEmbeddingRenderer, field="prompt")
