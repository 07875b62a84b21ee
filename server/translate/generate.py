"""translate_generate: a ``POST /generate`` request to a Job. Runs in a worker thread."""

from __future__ import annotations

from uuid import uuid4

from schemas.completions import CompletionRequest
from schemas.generate import GenerateRequest
from server.job import Job
from server.render.text import TextRenderer
from server.served_model import ServedModel
from server.translate.params import answer_length, sampling_params
from server.translate.prompt_size import size_check
from server.translate.prompts import completion_prompts

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
