"""POST /v1/completions."""

from __future__ import annotations

from typing import Any

from litestar import Controller, Response, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from schemas.completions import Completion, CompletionRequest
from server.admission.ticket import Ticket
from server.controllers.answer import answer
from server.controllers.ticketed import TICKETED_ERRORS, with_ticket
from server.openapi.responses import returns_or_streams
from server.serving import Serving
from server.translate.completions import translate_completion
from server.translate.size import num_generations


class CompletionController(Controller):
    path = "/v1/completions"
    tags = ("Completions",)
    middleware = (with_ticket,)

    @post(
        status_code=200,
        responses=returns_or_streams(Completion, Completion, *TICKETED_ERRORS),
    )
    async def create(
        self,
        data: JSONBody[CompletionRequest],
        serving: NamedDependency[Serving],
        ticket: NamedDependency[Ticket],
    ) -> Response[Any]:
        """Continue a text, or score it."""
        serving.check_accepting(data.model)
        return await answer(
            serving,
            ticket,
            translate_completion,
            data,
            num_generations=num_generations(data),
            priority=data.priority,
        )
