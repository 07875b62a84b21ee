"""Ollama's requests for vectors to jobs. Runs in a worker thread."""

from __future__ import annotations

from schemas.embeddings import EmbeddingRequest
from schemas.ollama import EmbedRequest, OldEmbedRequest
from server.job import Job
from server.render.ollama.embed import OllamaEmbeddingRenderer, OllamaEmbeddingsRenderer
from server.served_model import ServedModel
from server.translate.embeddings import translate_embeddings

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
