"""POST /api/chat and /api/generate, Ollama's API."""

from __future__ import annotations

from typing import Any

from litestar import Controller, Response, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from schemas.ollama import GenerationFields, OllamaChatRequest, OllamaGenerateRequest
from schemas.ollama_answer import OllamaChatAnswer, OllamaError, OllamaGenerateAnswer
from server.admission.ticket import Ticket
from server.controllers.answer import answer
from server.controllers.ticketed import TICKETED_ERRORS, with_ticket
from server.openapi.responses import NDJSON, returns_or_streams
from server.render.ollama.lines import NewLine, chat_line, generate_line, loaded_line
from server.serving import Serving
from server.translate.ollama.job import translate_chat, translate_generate
from server.translate.ollama.models import served_name


class OllamaController(Controller):
    path = "/api"
    tags = ("Ollama",)
    opt = {"any_media_type": True}  # noqa: RUF012
    middleware = (with_ticket,)

    @post(
        "/chat",
        status_code=200,
        responses=returns_or_streams(
            OllamaChatAnswer,
            OllamaChatAnswer,
            *TICKETED_ERRORS,
            error=OllamaError,
            last=None,
            stream_type=NDJSON,
        ),
    )
    async def chat(
        self,
        data: JSONBody[OllamaChatRequest],
        serving: NamedDependency[Serving],
        ticket: NamedDependency[Ticket],
    ) -> Response[Any]:
        """Continue a conversation, in Ollama's format."""
        serving.check_accepting(served_name(data.model))
        if not data.messages:
            return _loaded(data, serving, chat_line)
        return await answer(serving, ticket, translate_chat, data)

    @post(
        "/generate",
        status_code=200,
        responses=returns_or_streams(
            OllamaGenerateAnswer,
            OllamaGenerateAnswer,
            *TICKETED_ERRORS,
            error=OllamaError,
            last=None,
            stream_type=NDJSON,
        ),
    )
    async def generate(
        self,
        data: JSONBody[OllamaGenerateRequest],
        serving: NamedDependency[Serving],
        ticket: NamedDependency[Ticket],
    ) -> Response[Any]:
        """Answer a prompt, or continue a text, in Ollama's format."""
        serving.check_accepting(served_name(data.model))
        if not data.prompt and not data.suffix:
            return _loaded(data, serving, generate_line)
        return await answer(serving, ticket, translate_generate, data)


def _loaded(request: GenerationFields, serving: Serving, new_line: NewLine) -> Response[bytes]:
    """The answer to a request without anything to answer: clients load a model by it."""
    reason = "unload" if request.keep_alive in (0, "0") else "load"
    media_type = NDJSON if request.stream is not False else "application/json"
    return Response(loaded_line(new_line, serving.model.name, reason), media_type=media_type)
