"""translate_generate: a ``POST /generate`` request to a Job. Runs in a worker thread.

TextRenderer: responses of ``POST /generate``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar
from uuid import uuid4

import msgspec

from core.contract.messages import StepOutput
from schemas.completions import CompletionRequest
from schemas.generate import GenerateRequest, GenerateResponse
from server.generation.job import Job
from server.generation.model import ServedModel
from server.rendering.base import weight_of
from server.translation.params import answer_length, sampling_params
from server.translation.prompt_size import size_check
from server.translation.prompts import completion_prompts


class TextRenderer:
    """See Renderer. Streams raw UTF-8; the whole response is ``{"text": prompt + completion}``."""

    media_type: ClassVar[str] = "text/plain; charset=utf-8"
    keep_alive: ClassVar[bytes] = b""

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt

    def weight(self, _index: int, output: StepOutput) -> int:
        return weight_of(output)

    def begin(self) -> bytes:
        return b""

    def feed(self, _index: int, output: StepOutput) -> bytes:
        return output.text.encode()

    def end(self) -> bytes:
        return b""

    def error(self, _message: str, _cause: Exception | None = None) -> None:
        """Raw text cannot express an error. The connection is cut: the text is incomplete."""
        return

    def whole(self, outputs: Sequence[StepOutput]) -> bytes:
        return msgspec.json.encode(GenerateResponse(text=self._prompt + outputs[0].text))


DEFAULT_MAX_NEW_TOKENS = 64


def translate_generate(request: GenerateRequest, model: ServedModel) -> Job:
    """Tokenize and check the length. Raises InvalidRequest."""
    model.check_generates()
    completion = CompletionRequest(
        prompt=request.prompt,
        temperature=0.0 if request.do_sample is False else request.temperature,
        top_k=request.top_k,
        top_p=request.top_p,
        ignore_eos=request.stop_on_eos is False,
    )
    check_size = size_check(completion, model, param="prompt")
    [prompt] = completion_prompts(completion, model.tokenizer, check_size=check_size)
    max_tokens = answer_length(
        prompt.token_ids,
        request.max_new_tokens,
        model.info,
        param="prompt",
        default=DEFAULT_MAX_NEW_TOKENS,
        is_clamped=model.settings.clamp_max_tokens,
    )
    params = sampling_params(
        completion,
        max_tokens=max_tokens,
        logprobs=None,
        echo_logprobs=None,
        info=model.info,
        tokenizer=model.tokenizer,
    )
    return Job(
        id=f"gen-{uuid4().hex}",
        prompts=[prompt.token_ids],
        params=[params],
        is_streamed=bool(request.stream),
        stream_interval=model.settings.stream_interval,
        priority=request.priority or 0,
        renderer=TextRenderer(request.prompt),
    )
