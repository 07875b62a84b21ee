"""The routes of chat, text completions, models and tokens.

``/generate`` takes and answers plain text. ``/tokenize`` and ``/detokenize`` have vLLM's format.
"""

from __future__ import annotations

from typing import Any

from litestar import Controller, Response, get, post
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
from server.generation.answer import answer, answer_in_worker
from server.generation.serving import AnyRequest, Serving, ServingDep
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
        self, data: JSONBody[ChatCompletionRequest], request: AnyRequest
    ) -> Response[Any]:
        """Continue a conversation."""
        return await answer(request, translate_chat, data, num_generations=data.n or 1)


class CompletionController(Controller):
    path = "/v1/completions"
    tags = ("Completions",)

    @post(status_code=200, responses=returns_or_streams(Completion, Completion, *TICKETED_ERRORS))
    async def create(self, data: JSONBody[CompletionRequest], request: AnyRequest) -> Response[Any]:
        """Continue a text, or score it."""
        count = num_generations(data)
        return await answer(request, translate_completion, data, num_generations=count)


class GenerateController(Controller):
    path = "/generate"
    tags = ("Generate",)

    @post(
        status_code=200,
        responses=returns_or_streams(
            GenerateResponse, None, 400, 408, 413, 415, 429, 500, 503, 504
        ),
    )
    async def create(self, data: JSONBody[GenerateRequest], request: AnyRequest) -> Response[Any]:
        """Continue a text. Tokens are sampled unless ``do_sample`` is false."""
        return await answer(request, translate_generate, data)


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
    serving.bridge.check_accepting()
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
        self, data: JSONBody[TokenizeRequest], request: AnyRequest
    ) -> Response[bytes]:
        """Token ids of a text, or of a conversation as the chat template renders it."""
        return await answer_in_worker(request, tokenize, data)

    @post(
        ["/detokenize", "/v1/detokenize"],
        status_code=200,
        responses=returns(DetokenizeResponse, *TICKETED_ERRORS),
    )
    async def detokenize(
        self, data: JSONBody[DetokenizeRequest], request: AnyRequest
    ) -> Response[bytes]:
        """Text of token ids, special tokens included."""
        return await answer_in_worker(request, detokenize, data)


ROUTES: tuple[type[Controller], ...] = (
    ChatController,
    CompletionController,
    GenerateController,
    ModelController,
    TokenController,
)
