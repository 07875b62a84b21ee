"""POST /generate: the ancestor's route, without OpenAI's dialect."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from litestar import Controller, Response, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from core.contract.params import SamplingParams
from schemas.generate import GenerateRequest, GenerateResponse
from server.answers import StreamAnswer, WholeAnswer
from server.openapi import gives_or_streams
from server.render.text import TextRenderer
from server.serving import Serving
from server.translate.params import NO_STREAM, check_length, engine_requests

DEFAULT_MAX_NEW_TOKENS = 64


class GenerateController(Controller):
    """Plain text."""

    path = "/generate"
    tags = ("Generate",)

    @post(
        status_code=200,
        responses=gives_or_streams(GenerateResponse, None, 400, 413, 415, 429, 500, 503),
    )
    async def create(
        self, data: JSONBody[GenerateRequest], serving: NamedDependency[Serving]
    ) -> Response[Any]:
        """Continue a text. Sampling is on unless ``do_sample`` is false."""
        serving.bridge.check_accepting()
        tokenizer, defaults = serving.tokenizer, serving.info.default_sampling
        ids = await serving.in_worker(tokenizer.encode, data.prompt, add_special_tokens=True)
        ids = ids or tokenizer.start_token_ids()
        if data.max_new_tokens is None:
            room = check_length(len(ids), None, serving.info, param="prompt")
            max_tokens = min(room, DEFAULT_MAX_NEW_TOKENS)
        else:
            max_tokens = check_length(len(ids), data.max_new_tokens, serving.info, param="prompt")
        temperature = defaults.get("temperature", 1.0)
        if data.temperature is not None:
            temperature = data.temperature
        params = SamplingParams(
            max_tokens=max_tokens,
            temperature=0.0 if data.do_sample is False else temperature,
            top_k=max(int(defaults.get("top_k", 0)) if data.top_k is None else data.top_k, 0),
            top_p=defaults.get("top_p", 1.0) if data.top_p is None else data.top_p,
            ignore_eos=data.stop_on_eos is False,
        )
        requests = engine_requests(
            f"gen-{uuid4().hex}",
            [ids],
            [params],
            num_choices=1,
            stream_interval=serving.settings.stream_interval if data.stream else NO_STREAM,
            cache_salt=None,
        )
        renderer = TextRenderer(data.prompt)
        stream = serving.bridge.open(requests)
        if data.stream:
            return StreamAnswer(stream, renderer, media_type="text/plain; charset=utf-8")
        return WholeAnswer(stream, renderer)
