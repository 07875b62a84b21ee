"""POST /v1/completions."""

from __future__ import annotations

from typing import Any

from litestar import Controller, Response, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from core.contract.errors import InvalidRequest
from schemas.completions import Completion, CompletionRequest
from server.controllers.answering import answer, new_head, stream_interval
from server.openapi import gives_or_streams
from server.render.completions import CompletionFormat, CompletionRenderer
from server.render.logprobs import token_names
from server.serving import Serving
from server.translate.completions import plan_completions
from server.translate.params import check_stream_options, engine_requests
from server.translate.unsupported import refuse_unsupported


class CompletionController(Controller):
    """Texts."""

    path = "/v1/completions"
    tags = ("Completions",)

    @post(
        status_code=200,
        responses=gives_or_streams(Completion, Completion, 400, 404, 413, 415, 429, 500, 503),
    )
    async def create(
        self, data: JSONBody[CompletionRequest], serving: NamedDependency[Serving]
    ) -> Response[Any]:
        """Continue a text, or score it."""
        serving.bridge.check_accepting()
        serving.check_model(data.model)
        _check(data)
        plan = await serving.in_worker(plan_completions, data, serving.engine)
        num_requests = len(plan.prompts) * plan.num_candidates
        serving.bridge.check_room(num_requests)  # before so many are made
        options = data.stream_options
        head = new_head(serving, "cmpl")
        requests = engine_requests(
            head.id,
            plan.prompts,
            plan.params,
            num_choices=plan.num_candidates,
            stream_interval=stream_interval(serving, data),
            cache_salt=data.cache_salt,
        )
        renderer = CompletionRenderer(
            head,
            CompletionFormat(
                num_choices=data.n or 1,
                num_candidates=plan.num_candidates,
                num_top=data.logprobs,
                num_prompt_top=data.prompt_logprobs,
                echoes=plan.echoes,
                include_usage=bool(options and options.include_usage) or not data.stream,
                continuous_usage=bool(options and options.continuous_usage_stats),
                return_token_ids=bool(data.return_token_ids),
            ),
            requests,
            serving.tokenizer,
            token_names(serving.tokenizer, as_ids=bool(data.return_tokens_as_token_ids)),
        )
        return answer(serving, data, requests, renderer)


def _check(data: CompletionRequest) -> None:
    """What one field says of another."""
    check_stream_options(data)
    if data.best_of is not None and data.best_of < (data.n or 1):
        raise InvalidRequest(
            f"best_of ({data.best_of}) is below n ({data.n or 1}).",
            param="best_of",
            code="invalid_parameter_combination",
        )
    if data.best_of is not None and data.best_of > 1 and data.stream:
        raise InvalidRequest(
            "best_of cannot be streamed.",
            param="best_of",
            code="invalid_parameter_combination",
        )
    refuse_unsupported(data)
