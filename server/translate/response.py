"""Fields that say how a response is sent: streaming, usage, log-probabilities, identity."""

from __future__ import annotations

import time
from collections.abc import Sequence
from uuid import uuid4

from core.contract.errors import InvalidRequest
from core.contract.params import SamplingParams
from schemas.sampling import SamplingFields
from server.grammars import NewGrammars
from server.job import Job
from server.render.base import Head, Renderer
from server.render.envelope import Envelope
from server.served_model import ServedModel
from server.translate.nesting import check_nesting


def check_shared_fields(request: SamplingFields) -> None:
    """Checks that need no model, of fields that both APIs have. Raises InvalidRequest."""
    check_nesting(request)
    check_stream_options(request)


def check_stream_options(request: SamplingFields) -> None:
    """Raise InvalidRequest for ``stream_options`` without ``stream``."""
    if request.stream_options is not None and not request.stream:
        raise InvalidRequest(
            "stream_options is only allowed when stream is true.", param="stream_options"
        )


def new_envelope(
    request: SamplingFields,
    model: ServedModel,
    *,
    id_prefix: str,
    prompts: Sequence[Sequence[int]],
    num_choices: int,
    num_top: int | None,
    new_grammars: NewGrammars,
) -> Envelope:
    """The envelope of a new response, with an id of its own."""
    options = request.stream_options
    return Envelope(
        head=Head(
            id=f"{id_prefix}{uuid4().hex}",
            created=int(time.time()),
            model=model.name,
            system_fingerprint=model.fingerprint,
        ),
        tokenizer=model.tokenizer,
        prompts=prompts,
        num_choices=num_choices,
        num_top=num_top,
        num_prompt_top=request.prompt_logprobs,
        include_usage=bool(options and options.include_usage),
        continuous_usage=bool(options and options.continuous_usage_stats),
        return_token_ids=bool(request.return_token_ids),
        tokens_as_ids=bool(request.return_tokens_as_token_ids),
        warnings=new_grammars.warnings,
    )


def new_job(
    request: SamplingFields,
    model: ServedModel,
    envelope: Envelope,
    params: Sequence[SamplingParams],
    renderer: Renderer,
    new_grammars: NewGrammars,
) -> Job:
    """The job of a request with the fields that both OpenAI APIs have. Raises InvalidRequest."""
    _check_num_logprobs(request, model, envelope, params)
    return Job(
        id=envelope.head.id,
        prompts=envelope.prompts,
        params=params,
        num_choices=envelope.num_choices,
        is_streamed=bool(request.stream),
        stream_interval=request.stream_interval or model.settings.stream_interval,
        cache_salt=request.cache_salt,
        priority=request.priority or 0,
        renderer=renderer,
        new_grammars=new_grammars,
    )


def _check_num_logprobs(
    request: SamplingFields,
    model: ServedModel,
    envelope: Envelope,
    params: Sequence[SamplingParams],
) -> None:
    """Limit the log-probabilities that exist at once: all of an answer that is not streamed.

    Those of the only generation of a request count for the prompt only: the context limits it.
    """
    is_single = len(params) * envelope.num_choices == 1
    counted = 0
    for prompt, own in zip(envelope.prompts, params, strict=True):
        if own.prompt_logprobs is not None:
            counted += len(prompt) * (own.prompt_logprobs + 1)
        if own.logprobs is not None and not request.stream and not is_single:
            counted += own.max_tokens * (own.logprobs + 1)
    found, most = counted * envelope.num_choices, model.settings.max_answer_logprobs
    if found > most:
        raise InvalidRequest(
            f"The answer may have {found} log-probabilities; the limit is {most}. Ask for fewer "
            "alternatives, prompts, choices or tokens.",
            param="logprobs",
            code="invalid_value",
        )
