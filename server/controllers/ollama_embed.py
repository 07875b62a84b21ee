"""POST /api/embed and /api/embeddings, Ollama's API."""

from __future__ import annotations

from typing import Any

from litestar import Controller, Response, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from schemas.ollama import EmbedRequest, OldEmbedRequest
from schemas.ollama_answer import OllamaEmbedding, OllamaEmbeddings, OllamaError
from server.admission.ticket import Ticket
from server.controllers.answer import answer
from server.controllers.ticketed import TICKETED_ERRORS, with_ticket
from server.openapi.responses import returns
from server.serving import Serving
from server.translate.ollama.embed import translate_embed, translate_old_embed
from server.translate.ollama.models import served_name


class OllamaEmbedController(Controller):
    path = "/api"
    tags = ("Ollama",)
    opt = {"any_media_type": True}  # noqa: RUF012
    middleware = (with_ticket,)

    @post(
        "/embed",
        status_code=200,
        responses=returns(OllamaEmbeddings, *TICKETED_ERRORS, error=OllamaError),
    )
    async def embed(
        self,
        data: JSONBody[EmbedRequest],
        serving: NamedDependency[Serving],
        ticket: NamedDependency[Ticket],
    ) -> Response[Any]:
        """Turn texts into vectors, in Ollama's format. Clients load a model by none."""
        serving.check_accepting(served_name(data.model))
        if not data.input:
            name = serving.model.name
            return Response(
                OllamaEmbeddings(model=name, embeddings=[], total_duration=0, prompt_eval_count=0)
            )
        return await answer(serving, ticket, translate_embed, data)

    @post(
        "/embeddings",
        status_code=200,
        responses=returns(OllamaEmbedding, *TICKETED_ERRORS, error=OllamaError),
    )
    async def embed_one(
        self,
        data: JSONBody[OldEmbedRequest],
        serving: NamedDependency[Serving],
        ticket: NamedDependency[Ticket],
    ) -> Response[Any]:
        """Turn a text into a vector, in the older form of Ollama's format."""
        serving.check_accepting(served_name(data.model))
        if not data.prompt:
            return Response(OllamaEmbedding(embedding=[]))
        return await answer(serving, ticket, translate_old_embed, data)
