"""Ollama's routes about models: what is served, and refusals of what would change it."""

from __future__ import annotations

from litestar import Controller, delete, get, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from schemas.ollama import ShowRequest
from schemas.ollama_answer import (
    OLLAMA_VERSION,
    LocalModels,
    OllamaError,
    OllamaVersion,
    RunningModels,
    ShownModel,
)
from server.controllers.ticketed import TICKETED_ERRORS, with_ticket
from server.errors import APIError
from server.openapi.responses import returns
from server.serving import Serving
from server.translate.ollama.models import (
    local_model,
    running_model,
    served_name,
    shown_model,
)


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
