"""Ollama's API: answers, vectors, what is served, and refusals of what would change it."""

from __future__ import annotations

from functools import partial
from typing import Any

from litestar import Controller, Response, delete, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from schemas import ollama as wire
from schemas import ollama_answer as answers
from server.apis.ollama.embed import translate_embed, translate_old_embed
from server.apis.ollama.models import local_model, running_model, shown_model
from server.apis.ollama.renderer import NewLine, chat_line, encoded_line, generate_line
from server.apis.ollama.request import translate_chat, translate_generate
from server.generation.answer import answer
from server.generation.serving import AnyRequest, ServingDep, admitted
from server.http.apis import NDJSON
from server.http.errors import APIError
from server.openapi.describe import TICKETED_ERRORS, returns, returns_or_streams


def _lines(kind: type[answers.OllamaAnswer]) -> dict[int, ResponseSpec]:
    """The responses of a route that answers with a ``kind``, or with lines of them."""
    return returns_or_streams(
        kind, kind, *TICKETED_ERRORS, error=answers.OllamaError, last=None, stream_type=NDJSON
    )


_returns = partial(returns, error=answers.OllamaError)


class OllamaController(Controller):
    path = "/api"
    tags = ("Ollama",)

    @post("/chat", status_code=200, responses=_lines(answers.OllamaChatAnswer))
    async def chat(
        self, data: JSONBody[wire.OllamaChatRequest], request: AnyRequest
    ) -> Response[Any]:
        """Continue a conversation, in Ollama's format."""
        if not data.messages:
            return _loaded(request, data, chat_line)
        return await answer(request, translate_chat, data)

    @post("/generate", status_code=200, responses=_lines(answers.OllamaGenerateAnswer))
    async def generate(
        self, data: JSONBody[wire.OllamaGenerateRequest], request: AnyRequest
    ) -> Response[Any]:
        """Answer a prompt, or continue a text, in Ollama's format."""
        if not data.prompt and not data.suffix:
            return _loaded(request, data, generate_line)
        return await answer(request, translate_generate, data)


class OllamaModelController(Controller):
    path = "/api"
    tags = ("Ollama",)

    @post("/embed", status_code=200, responses=_returns(answers.OllamaEmbeddings, *TICKETED_ERRORS))
    async def embed(self, data: JSONBody[wire.EmbedRequest], request: AnyRequest) -> Response[Any]:
        """Turn texts into vectors, in Ollama's format. Clients load a model by none."""
        if not data.input:
            serving, _ = admitted(request, data.model)
            none = answers.OllamaEmbeddings(
                model=serving.model.name, embeddings=[], total_duration=0, prompt_eval_count=0
            )
            return Response(none)
        return await answer(request, translate_embed, data)

    @post(
        "/embeddings",
        status_code=200,
        responses=_returns(answers.OllamaEmbedding, *TICKETED_ERRORS),
    )
    async def embed_one(
        self, data: JSONBody[wire.OldEmbedRequest], request: AnyRequest
    ) -> Response[Any]:
        """Turn a text into a vector, in the older form of Ollama's format."""
        if not data.prompt:
            admitted(request, data.model)
            return Response(answers.OllamaEmbedding(embedding=[]))
        return await answer(request, translate_old_embed, data)

    @get("/version", sync_to_thread=False, responses=_returns(answers.OllamaVersion, 500))
    def version(self) -> answers.OllamaVersion:
        """The version of Ollama's API that this server follows."""
        return answers.OllamaVersion(version=answers.OLLAMA_VERSION)

    @get("/tags", sync_to_thread=False, responses=_returns(answers.LocalModels, 500, 503))
    def list_models(self, serving: ServingDep) -> answers.LocalModels:
        """List the served model, in Ollama's format."""
        serving.bridge.check_accepting()
        return answers.LocalModels(models=[local_model(serving.model, serving.created)])

    @get("/ps", sync_to_thread=False, responses=_returns(answers.RunningModels, 500, 503))
    def list_loaded(self, serving: ServingDep) -> answers.RunningModels:
        """List the loaded model, in Ollama's format."""
        serving.bridge.check_accepting()
        return answers.RunningModels(models=[running_model(serving.model)])

    @post(
        "/show",
        status_code=200,
        sync_to_thread=False,
        responses=_returns(answers.ShownModel, *TICKETED_ERRORS),
    )
    def show(self, data: JSONBody[wire.ShowRequest], request: AnyRequest) -> answers.ShownModel:
        """Describe the served model, in Ollama's format."""
        serving, _ = admitted(request, data.model or data.name)
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


def _loaded(request: AnyRequest, data: wire.GenerationFields, new_line: NewLine) -> Response[bytes]:
    """The answer to a request without anything to answer: clients load a model by it."""
    serving, _ = admitted(request, data.model)
    reason = "unload" if data.keep_alive in (0, "0") else "load"
    body = encoded_line(new_line, serving.model.name, done=True, done_reason=reason)
    media_type = NDJSON if data.stream is not False else "application/json"
    return Response(body, media_type=media_type)


def _refusal() -> APIError:
    return APIError(
        400,
        "This server serves one model, which its operator chose; it pulls, makes and deletes none.",
        code="unsupported_parameter",
    )


ROUTES: tuple[type[Controller], ...] = (OllamaController, OllamaModelController)
