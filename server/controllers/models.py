"""GET /v1/models and /v1/models/{id}."""

from __future__ import annotations

from litestar import Controller, get
from litestar.di import NamedDependency
from litestar.params import FromPath

from schemas.models import Model, ModelList
from server.model_names import default_name
from server.openapi.responses import returns
from server.serving import Serving


class ModelController(Controller):
    path = "/v1/models"
    tags = ("Models",)

    @get(sync_to_thread=False, responses=returns(ModelList, 500, 503))
    def list_models(self, serving: NamedDependency[Serving]) -> ModelList:
        """List the ids of the served model."""
        names = serving.settings.served_model_names
        return ModelList(data=[_model(serving, name) for name in names])

    @get("/{model_id:path}", sync_to_thread=False, responses=returns(Model, 404, 500, 503))
    def retrieve(self, model_id: FromPath[str], serving: NamedDependency[Serving]) -> Model:
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
