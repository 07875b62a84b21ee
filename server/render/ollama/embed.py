"""Renderers of /api/embed and /api/embeddings."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import msgspec

from schemas.embeddings import InputUsage
from schemas.ollama_answer import OllamaEmbedding, OllamaEmbeddings
from server.render.embeddings import EmbeddingRenderer
from server.render.vectors import Vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class OllamaEmbeddingsRenderer(EmbeddingRenderer):
    """See Renderer. The vectors of all texts."""

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
    """See Renderer. The vector of the only text."""

    def _response(self, vectors: Vectors, _usage: InputUsage) -> msgspec.Struct:
        return OllamaEmbedding(embedding=self._cut(vectors)[0].tolist())
