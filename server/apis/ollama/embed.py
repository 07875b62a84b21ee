"""/api/embed and /api/embeddings: requests to jobs, in a worker thread, and their responses."""

from __future__ import annotations

import time

from schemas.embeddings import EmbeddingRequest, InputUsage
from schemas.ollama import EmbedRequest, OldEmbedRequest
from schemas.ollama_answer import OllamaEmbedding, OllamaEmbeddings
from server.apis.pooling.embeddings import embedding_job
from server.apis.pooling.job import Vectors
from server.generation.job import Job
from server.generation.model import ServedModel

CUT = -1
"""``truncate_prompt_tokens``: longer texts are cut to the context, which is Ollama's default."""


def translate_embed(request: EmbedRequest, model: ServedModel) -> Job:
    """The job of some texts. Raises InvalidRequest."""
    texts, start = request.input or "", time.perf_counter_ns()
    same = EmbeddingRequest(
        input=texts if isinstance(texts, str) else [*texts],
        dimensions=request.dimensions,
        truncate_prompt_tokens=None if request.truncate is False else CUT,
    )

    def new_response(vectors: Vectors, usage: InputUsage) -> OllamaEmbeddings:
        return OllamaEmbeddings(
            model=model.name,
            embeddings=vectors.tolist(),
            total_duration=time.perf_counter_ns() - start,
            prompt_eval_count=usage.prompt_tokens,
        )

    return embedding_job(same, model, new_response, field="input")


def translate_old_embed(request: OldEmbedRequest, model: ServedModel) -> Job:
    """The job of one text. Raises InvalidRequest."""
    same = EmbeddingRequest(input=request.prompt or "", truncate_prompt_tokens=CUT)

    def new_response(vectors: Vectors, _usage: InputUsage) -> OllamaEmbedding:
        return OllamaEmbedding(embedding=vectors[0].tolist())

    return embedding_job(same, model, new_response, field="prompt")
