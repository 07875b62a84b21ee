"""POST /generate: the translation to a Job, in a worker thread, and its renderer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from core.contract.messages import StepOutput
from schemas.completions import CompletionRequest
from schemas.generate import GenerateRequest, GenerateResponse
from server.generation.job import Job
from server.generation.model import ServedModel
from server.rendering.base import Renderer
from server.translation.text import text_job

DEFAULT_MAX_NEW_TOKENS = 64


class TextRenderer(Renderer):
    """Streams raw UTF-8; the whole response is ``{"text": prompt + completion}``.

    Raw text cannot express an error: the connection is cut, as the text is incomplete.
    """

    media_type: ClassVar[str] = "text/plain; charset=utf-8"

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt

    def feed(self, _index: int, output: StepOutput) -> bytes:
        return output.text.encode()

    def whole(self, outputs: Sequence[StepOutput]) -> bytes:
        return msgspec.json.encode(GenerateResponse(text=self._prompt + outputs[0].text))


def translate_generate(request: GenerateRequest, model: ServedModel) -> Job:
    """The job of a text to continue. Raises InvalidRequest."""
    completion = CompletionRequest(
        prompt=request.prompt,
        max_tokens=request.max_new_tokens,
        temperature=0.0 if request.do_sample is False else request.temperature,
        top_k=request.top_k,
        top_p=request.top_p,
        ignore_eos=request.stop_on_eos is False,
        stream=request.stream,
        priority=request.priority,
    )
    return text_job(
        completion,
        model,
        id_prefix="gen-",
        new_renderer=lambda _envelope, _prompts: TextRenderer(request.prompt),
        default_length=DEFAULT_MAX_NEW_TOKENS,
    )
