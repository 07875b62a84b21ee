"""Routes, one controller for each API."""

from __future__ import annotations

from litestar import Controller

from server.controllers.chat import ChatController
from server.controllers.completions import CompletionController
from server.controllers.generate import GenerateController
from server.controllers.messages import MessagesController
from server.controllers.models import ModelController
from server.controllers.ollama import OllamaController
from server.controllers.ollama_embed import OllamaEmbedController
from server.controllers.ollama_models import OllamaModelController
from server.controllers.operation import OPERATION_CONTROLLERS
from server.controllers.pooling import PoolingController
from server.controllers.responses import ResponsesController
from server.controllers.stored_responses import StoredResponseController
from server.controllers.tokens import TokenController

CONTROLLERS: list[type[Controller]] = [
    ChatController,
    CompletionController,
    GenerateController,
    MessagesController,
    ModelController,
    ResponsesController,
    StoredResponseController,
    OllamaController,
    OllamaEmbedController,
    OllamaModelController,
    PoolingController,
    TokenController,
    *OPERATION_CONTROLLERS,
]
