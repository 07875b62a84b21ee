"""Fields that chat and text completions have in common, from the first checks to the Job."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import uuid4

from core.contract.errors import InvalidRequest
from core.contract.params import SamplingParams
from schemas.sampling import SamplingFields
from server.generation.job import Job, NewGrammars
from server.generation.model import ServedModel
from server.http.decoding import check_nesting
from server.http.errors import invalid
from server.rendering.base import AnswerHead, Envelope, Renderer

Options = TypeVar("Options")


def check_shared_fields(request: SamplingFields) -> None:
    """Checks that need no model. Raises InvalidRequest."""
    check_nesting(request)
    if request.stream_options is not None and not request.stream:
        raise InvalidRequest(
            "stream_options is only allowed when stream is true.", param="stream_options"
        )


def new_job(
    request: SamplingFields,
    model: ServedModel,
    *,
    id_prefix: str,
    prompts: Sequence[Sequence[int]],
    params: Sequence[SamplingParams],
    num_choices: int,
    num_top: int | None,
    new_grammars: NewGrammars,
    new_renderer: Callable[[Envelope, Options], Renderer],
    options: Options,
) -> Job:
    """The job of a translated request, with an id of its own. Raises InvalidRequest.

    ``num_top`` is the number of alternatives per generated token. None: no log-probabilities.
    """
    wanted = request.stream_options
    envelope = Envelope(
        head=AnswerHead(
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
        include_usage=bool(wanted and wanted.include_usage),
        continuous_usage=bool(wanted and wanted.continuous_usage_stats),
        return_token_ids=bool(request.return_token_ids),
        tokens_as_ids=bool(request.return_tokens_as_token_ids),
        warnings=new_grammars.warnings,
    )
    job = Job(
        id=envelope.head.id,
        prompts=prompts,
        params=params,
        num_choices=num_choices,
        is_streamed=bool(request.stream),
        stream_interval=request.stream_interval or model.settings.stream_interval,
        cache_salt=request.cache_salt,
        priority=request.priority or 0,
        renderer=new_renderer(envelope, options),
        new_grammars=new_grammars,
    )
    _check_num_logprobs(job, model.settings.max_answer_logprobs)
    return job


def _check_num_logprobs(job: Job, most: int) -> None:
    """Limit the log-probabilities that exist at once: all of an answer that is not streamed.

    Those of the only generation of a request count for the prompt only: the context limits it.
    """
    is_single = len(job.params) * job.num_choices == 1
    counted = 0
    for prompt, params in zip(job.prompts, job.params, strict=True):
        if params.prompt_logprobs is not None:
            counted += len(prompt) * (params.prompt_logprobs + 1)
        if params.logprobs is not None and not job.is_streamed and not is_single:
            counted += params.max_tokens * (params.logprobs + 1)
    found = counted * job.num_choices
    if found > most:
        raise invalid(
            "logprobs",
            f"The answer may have {found} log-probabilities; the limit is {most}. Ask for fewer "
            "alternatives, prompts, choices or tokens.",
        )
