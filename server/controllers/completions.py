"""POST /v1/completions."""

from __future__ import annotations

from typing import Any

from litestar import Controller, Response, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from schemas.completions import Completion, CompletionRequest
from server.controllers.answer import answer
from server.openapi.responses import returns_or_streams
from server.serving import Serving
from server.tenants.tenant import Tenant
from server.translate.completions import translate_completion


class CompletionController(Controller):
    path = "/v1/completions"
    tags = ("Completions",)

    @post(
        status_code=200,
        responses=returns_or_streams(Completion, Completion, 400, 404, 413, 415, 429, 500, 503),
    )
    async def create(
        self,
        data: JSONBody[CompletionRequest],
        serving: NamedDependency[Serving],
        tenant: NamedDependency[Tenant],
    ) -> Response[Any]:
        """Continue a text, or score it."""
        serving.check_accepting(data.model)
        return await answer(serving, translate_completion, data, tenant)
