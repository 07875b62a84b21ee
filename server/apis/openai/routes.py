"""The routes of chat, text completions, models and tokens.

``/generate`` takes and answers plain text. ``/tokenize`` and ``/detokenize`` have vLLM's format.
"""

from __future__ import annotations

from typing import Any

from litestar import Controller, MediaType, Response, get, post
from litestar.params import FromPath, JSONBody

from schemas.chat import ChatCompletion, ChatCompletionRequest
from schemas.chat_chunk import ChatCompletionChunk
from schemas.completions import Completion, CompletionRequest
from schemas.generate import GenerateRequest, GenerateResponse
from schemas.models import Model, ModelList
from schemas.tokenize import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
)
from server.apis.openai.chat import translate_chat
from server.apis.openai.completions import num_generations, translate_completion, translate_generate
from server.apis.openai.tokens import detokenize, tokenize
from server.generation.answer import answer
from server.generation.serving import Serving, ServingDep, TicketDep
from server.openapi.describe import TICKETED_ERRORS, returns, returns_or_streams
from server.settings.settings import default_name


class ChatController(Controller):
    path = "/v1/chat/completions"
    tags = ("Chat",)

    @post(
        status_code=200,
        responses=returns_or_streams(ChatCompletion, ChatCompletionChunk, *TICKETED_ERRORS),
    )
    async def create(
        self, data: JSONBody[ChatCompletionRequest], serving: ServingDep, ticket: TicketDep
    ) -> Response[Any]:
        """Continue a conversation."""
        serving.check_accepting(data.model)
        return await answer(serving, ticket, translate_chat, data, num_generations=data.n or 1)


class CompletionController(Controller):
    path = "/v1/completions"
    tags = ("Completions",)

    @post(status_code=200, responses=returns_or_streams(Completion, Completion, *TICKETED_ERRORS))
    async def create(
        self, data: JSONBody[CompletionRequest], serving: ServingDep, ticket: TicketDep
    ) -> Response[Any]:
        """Continue a text, or score it."""
        serving.check_accepting(data.model)
        count = num_generations(data)
        return await answer(serving, ticket, translate_completion, data, num_generations=count)


class GenerateController(Controller):
    path = "/generate"
    tags = ("Generate",)

    @post(
        status_code=200,
        responses=returns_or_streams(
            GenerateResponse, None, 400, 408, 413, 415, 429, 500, 503, 504
        ),
    )
    async def create(
        self, data: JSONBody[GenerateRequest], serving: ServingDep, ticket: TicketDep
    ) -> Response[Any]:
        """Continue a text. Tokens are sampled unless ``do_sample`` is false."""
        serving.check_accepting()
        return await answer(serving, ticket, translate_generate, data)


class ModelController(Controller):
    path = "/v1/models"
    tags = ("Models",)

    @get(sync_to_thread=False, responses=returns(ModelList, 500, 503))
    def list_models(self, serving: ServingDep) -> ModelList:
        """List the ids of the served model."""
        names = serving.settings.served_model_names
        return ModelList(data=[_model(serving, name) for name in names])

    @get("/{model_id:path}", sync_to_thread=False, responses=returns(Model, 404, 500, 503))
    def retrieve(self, model_id: FromPath[str], serving: ServingDep) -> Model:
        """Describe a model. Its id may contain slashes, encoded or not."""
        name = str(model_id).removeprefix("/")
        serving.check_model(name)
        return _model(serving, name)


def _model(serving: Serving, name: str) -> Model:
    serving.check_accepting()
    model = serving.model
    return Model(
        id=name,
        created=serving.created,
        owned_by="roseinfer",
        root=default_name(model.settings.model.model),
        max_model_len=model.info.max_model_len,
    )


class TokenController(Controller):
    path = "/"
    tags = ("Tokens",)

    @post(
        ["/tokenize", "/v1/tokenize"],
        status_code=200,
        responses=returns(TokenizeResponse, *TICKETED_ERRORS),
    )
    async def tokenize(
        self, data: JSONBody[TokenizeRequest], serving: ServingDep, ticket: TicketDep
    ) -> Response[bytes]:
        """Token ids of a text, or of a conversation as the chat template renders it."""
        serving.check_accepting(data.model)
        body = await serving.pools.tokens.run(ticket.turn(), tokenize, data, serving.model)
        ticket.rendered(len(body))
        return Response(body, media_type=MediaType.JSON)

    @post(
        ["/detokenize", "/v1/detokenize"],
        status_code=200,
        responses=returns(DetokenizeResponse, *TICKETED_ERRORS),
    )
    async def detokenize(
        self, data: JSONBody[DetokenizeRequest], serving: ServingDep, ticket: TicketDep
    ) -> Response[bytes]:
        """Text of token ids, special tokens included."""
        serving.check_accepting(data.model)
        body = await serving.pools.tokens.run(ticket.turn(), detokenize, data, serving.model)
        ticket.rendered(len(body))
        return Response(body, media_type=MediaType.JSON)


ROUTES: tuple[type[Controller], ...] = (
    ChatController,
    CompletionController,
    GenerateController,
    ModelController,
    TokenController,
)
