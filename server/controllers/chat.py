"""POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any

from litestar import Controller, Response, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from core.contract.errors import InvalidRequest
from schemas.chat import ChatCompletion, ChatCompletionRequest
from schemas.chat_chunk import ChatCompletionChunk
from server.controllers.answering import answer, new_head, stream_interval
from server.openapi import gives_or_streams
from server.render.chat import ChatFormat, ChatRenderer
from server.render.logprobs import token_names
from server.serving import Serving
from server.translate.chat import plan_chat
from server.translate.params import check_stream_options, engine_requests
from server.translate.unsupported import refuse_unsupported


class ChatController(Controller):
    """Conversations."""

    path = "/v1/chat/completions"
    tags = ("Chat",)

    @post(
        status_code=200,
        responses=gives_or_streams(
            ChatCompletion, ChatCompletionChunk, 400, 404, 413, 415, 429, 500, 503
        ),
    )
    async def create(
        self, data: JSONBody[ChatCompletionRequest], serving: NamedDependency[Serving]
    ) -> Response[Any]:
        """Continue a conversation."""
        serving.bridge.check_accepting()
        serving.check_model(data.model)
        _check(data)
        plan = await serving.in_worker(
            plan_chat,
            data,
            serving.engine,
            serving.families,
            allow_template=serving.settings.trust_request_chat_template,
        )
        options = data.stream_options
        head = new_head(serving, "chatcmpl")
        requests = engine_requests(
            head.id,
            [plan.prompt],
            [plan.params],
            num_choices=data.n or 1,
            stream_interval=stream_interval(serving, data),
            cache_salt=data.cache_salt,
        )
        renderer = ChatRenderer(
            head,
            ChatFormat(
                num_choices=data.n or 1,
                num_top=plan.params.logprobs,
                num_prompt_top=data.prompt_logprobs,
                include_usage=bool(options and options.include_usage),
                continuous_usage=bool(options and options.continuous_usage_stats),
                return_token_ids=bool(data.return_token_ids),
                new_parser=plan.new_parser,
                may_call=bool(plan.tools.callable),
                call_finish_reason="stop" if plan.tools.is_named else "tool_calls",
                shows_reasoning=data.include_reasoning is not False,
                thinking=plan.params.thinking,
            ),
            requests,
            serving.tokenizer,
            token_names(serving.tokenizer, as_ids=bool(data.return_tokens_as_token_ids)),
        )
        return answer(serving, data, requests, renderer)


def _check(data: ChatCompletionRequest) -> None:
    """What one field says of another."""
    check_stream_options(data)
    if data.top_logprobs and not data.logprobs:
        raise InvalidRequest(
            "top_logprobs is only allowed when logprobs is true.",
            param="top_logprobs",
            code="invalid_parameter_combination",
        )
    refuse_unsupported(data)
