"""A text request to prompts and their SamplingParams. Takes long: runs in a worker thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from core.build import EngineInfo, LoadedEngine
from core.contract.params import SamplingParams
from schemas.completions import CompletionRequest
from server.translate.formats import output_format
from server.translate.params import check_length, sampling_params
from server.translate.prompts import completion_prompts, truncate

DEFAULT_MAX_TOKENS = 16
"""OpenAI's, for a request that names none."""


@dataclass(frozen=True, slots=True)
class CompletionPlan:
    """What a text request comes to, prompt by prompt.

    ``num_candidates`` are generated for each prompt, of which the best n are shown. ``echoes``
    are the prompts as text, if the answer repeats them.
    """

    prompts: list[Sequence[int]]
    params: list[SamplingParams]
    echoes: list[str] | None
    num_candidates: int


def plan_completions(request: CompletionRequest, loaded: LoadedEngine) -> CompletionPlan:
    """Tokenize, and check everything that takes the model's facts. Raises InvalidRequest."""
    tokenizer, info = loaded.tokenizer, loaded.info
    given = completion_prompts(request, tokenizer)
    wanted = DEFAULT_MAX_TOKENS if request.max_tokens is None else request.max_tokens
    prompts = [truncate(p.token_ids, request, room=info.max_model_len - wanted) for p in given]
    num_choices = request.n or 1
    num_candidates = max(request.best_of or 1, num_choices)
    must_rank = num_candidates > num_choices
    grammar, format_param = output_format(request)
    if grammar is not None:
        loaded.grammar_compiler.check(grammar, param=format_param)
    max_tokens = [_max_tokens(len(prompt), request, info) for prompt in prompts]
    common = sampling_params(
        request,
        max_tokens=max_tokens[0],
        logprobs=0 if request.logprobs is None and must_rank else request.logprobs,
        echo_logprobs=request.logprobs if request.echo else None,
        info=info,
        tokenizer=tokenizer,
        grammar=grammar,
    )
    skip = request.skip_special_tokens is not False
    echoes = [
        source.text  # verbatim where it was given as text and is used whole
        if source.text is not None and prompt is source.token_ids
        else tokenizer.decode(prompt, skip_special_tokens=skip)
        for source, prompt in zip(given, prompts, strict=True)
    ]
    return CompletionPlan(
        prompts=prompts,
        params=[msgspec.structs.replace(common, max_tokens=most) for most in max_tokens],
        echoes=echoes if request.echo else None,
        num_candidates=num_candidates,
    )


def _max_tokens(num_prompt_tokens: int, request: CompletionRequest, info: EngineInfo) -> int:
    room = check_length(num_prompt_tokens, request.max_tokens, info, param="prompt")
    return min(room, DEFAULT_MAX_TOKENS) if request.max_tokens is None else room
