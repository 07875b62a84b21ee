"""POST /api/chat and /api/generate, Ollama's API.

POST /api/embed and /api/embeddings, Ollama's API.

Ollama's routes about models: what is served, and refusals of what would change it.
"""

from __future__ import annotations

from typing import Any

from litestar import Controller, Response, delete, get, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from schemas.ollama import (
    EmbedRequest,
    GenerationFields,
    OldEmbedRequest,
    OllamaChatRequest,
    OllamaGenerateRequest,
    ShowRequest,
)
from schemas.ollama_answer import (
    OLLAMA_VERSION,
    LocalModels,
    OllamaChatAnswer,
    OllamaEmbedding,
    OllamaEmbeddings,
    OllamaError,
    OllamaGenerateAnswer,
    OllamaVersion,
    RunningModels,
    ShownModel,
)
from server.admission.admission import Ticket
from server.apis.ollama.embed import translate_embed, translate_old_embed
from server.apis.ollama.models import local_model, running_model, served_name, shown_model
from server.apis.ollama.renderer import NewLine, chat_line, generate_line, loaded_line
from server.apis.ollama.request import translate_chat, translate_generate
from server.generation.admit import TICKETED_ERRORS, with_ticket
from server.generation.answer import answer
from server.generation.serving import Serving
from server.http.errors import APIError
from server.openapi.responses import NDJSON, returns, returns_or_streams


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


class OllamaModelController(Controller):
    path = "/api"
    tags = ("Ollama",)
    opt = {"any_media_type": True}  # noqa: RUF012

    @get(
        "/version",
        sync_to_thread=False,
        responses=returns(OllamaVersion, 500, error=OllamaError),
    )
    def version(self) -> OllamaVersion:
        """The version of Ollama's API that this server follows."""
        return OllamaVersion(version=OLLAMA_VERSION)

    @get("/tags", sync_to_thread=False, responses=returns(LocalModels, 500, 503, error=OllamaError))
    def list_models(self, serving: NamedDependency[Serving]) -> LocalModels:
        """List the served model, in Ollama's format."""
        serving.check_accepting()
        return LocalModels(models=[local_model(serving.model, serving.created)])

    @get("/ps", sync_to_thread=False, responses=returns(RunningModels, 500, 503, error=OllamaError))
    def list_loaded(self, serving: NamedDependency[Serving]) -> RunningModels:
        """List the loaded model, in Ollama's format."""
        serving.check_accepting()
        return RunningModels(models=[running_model(serving.model)])

    @post(
        "/show",
        status_code=200,
        middleware=(with_ticket,),
        sync_to_thread=False,
        responses=returns(ShownModel, *TICKETED_ERRORS, error=OllamaError),
    )
    def show(self, data: JSONBody[ShowRequest], serving: NamedDependency[Serving]) -> ShownModel:
        """Describe the served model, in Ollama's format."""
        serving.check_accepting(served_name(data.model or data.name))
        return shown_model(serving.model, serving.created)

    @post(
        ["/pull", "/push", "/create", "/copy"],
        status_code=200,
        sync_to_thread=False,
        include_in_schema=False,
    )
    def change(self) -> None:
        """Refuse: the operator chooses the model."""
        raise _refusal()

    @delete("/delete", status_code=200, sync_to_thread=False, include_in_schema=False)
    def remove(self) -> None:
        """Refuse: the operator chooses the model."""
        raise _refusal()


def _refusal() -> APIError:
    return APIError(
        400,
        "This server serves one model, which its operator chose; it pulls, makes and deletes none.",
        code="unsupported_parameter",
    )


ROUTES: tuple[type[Controller], ...] = (
    OllamaController,
    OllamaEmbedController,
    OllamaModelController,
)
