"""What the two OpenAI endpoints do alike once a request is understood."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol
from uuid import uuid4

from litestar import Response

from core.contract.messages import EngineRequest
from schemas.sampling import SamplingFields
from server.answers import StreamAnswer, WholeAnswer
from server.render.base import Head, StreamRenderer, WholeRenderer
from server.serving import Serving
from server.translate.params import NO_STREAM


class Renderer(StreamRenderer, WholeRenderer, Protocol):
    """Both ways to be rendered."""


def new_head(serving: Serving, prefix: str) -> Head:
    """The head of a new answer, with an id of its own."""
    return Head(
        id=f"{prefix}-{uuid4().hex}",
        created=int(time.time()),
        model=serving.model_name,
        system_fingerprint=serving.fingerprint,
    )


def stream_interval(serving: Serving, request: SamplingFields) -> int:
    """Tokens in a piece: the request's choice, else the operator's; one piece if not streamed."""
    if not request.stream:
        return NO_STREAM
    return request.stream_interval or serving.settings.stream_interval


def answer(
    serving: Serving,
    request: SamplingFields,
    requests: Sequence[EngineRequest],
    renderer: Renderer,
) -> Response[Any]:
    """Submit, and give what will send the answer. Raises what ``EngineBridge.open`` does."""
    stream = serving.bridge.open(requests)
    if not request.stream:
        return WholeAnswer(stream, renderer)
    return StreamAnswer(stream, renderer, keep_alive_interval=serving.keep_alive_interval)
