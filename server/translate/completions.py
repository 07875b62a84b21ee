"""translate_completion: a text completion request to a Job. Runs in a worker thread."""

from __future__ import annotations

import msgspec

from core.contract.errors import InvalidRequest
from core.contract.params import SamplingParams
from schemas.completions import CompletionRequest
from server.grammars import NewGrammars
from server.job import Job
from server.render.completions import CompletionOptions, CompletionRenderer
from server.served_model import ServedModel
from server.translate.formats import output_format
from server.translate.params import answer_length, sampling_params
from server.translate.prompt_size import size_check
from server.translate.prompts import TokenizedPrompt, completion_prompts, truncate
from server.translate.response import check_shared_fields, new_envelope, new_job
from server.translate.unsupported import refuse_unsupported

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default for ``max_tokens``."""


def translate_completion(request: CompletionRequest, model: ServedModel) -> Job:
    """Check the fields and tokenize the prompts. Raises InvalidRequest."""
    model.check_generates()
    _check_fields(request)
    prompts = _prompts(request, model)
    num_best = request.n or 1
    num_candidates = max(request.best_of or 1, num_best)
    new_grammars = NewGrammars(model.grammar_compiler)
    must_rank = num_candidates > num_best
    params = _params(request, model, prompts, new_grammars, must_rank=must_rank)
    envelope = new_envelope(
        request,
        model,
        id_prefix="cmpl-",
        prompts=[prompt.token_ids for prompt in prompts],
        num_choices=num_candidates,
        num_top=request.logprobs,
        new_grammars=new_grammars,
    )
    options = CompletionOptions(num_best=num_best, echoes=_echoes(request, model, prompts))
    renderer = CompletionRenderer(envelope, options)
    return new_job(request, model, envelope, params, renderer, new_grammars)


def _check_fields(request: CompletionRequest) -> None:
    """Checks that need no model."""
    check_shared_fields(request)
    if request.best_of is not None and request.best_of < (request.n or 1):
        raise InvalidRequest(
            f"best_of ({request.best_of}) is below n ({request.n or 1}).",
            param="best_of",
            code="invalid_parameter_combination",
        )
    if request.best_of is not None and request.best_of > 1 and request.stream:
        raise InvalidRequest(
            "best_of cannot be streamed.",
            param="best_of",
            code="invalid_parameter_combination",
        )
    refuse_unsupported(request)


def _prompts(request: CompletionRequest, model: ServedModel) -> list[TokenizedPrompt]:
    prompts = completion_prompts(
        request,
        model.tokenizer,
        check_size=size_check(request, model, param="prompt"),
        check_suffix=size_check(request, model, param="suffix"),
        most_tokens=model.settings.max_queued_prompt_tokens,
    )
    if request.truncate_prompt_tokens is None:
        return prompts
    wanted = DEFAULT_MAX_TOKENS if request.max_tokens is None else request.max_tokens
    wanted = 1 if wanted == -1 else wanted
    room = model.info.max_model_len - wanted
    return [TokenizedPrompt(truncate(p.token_ids, request, room=room)) for p in prompts]


def _params(
    request: CompletionRequest,
    model: ServedModel,
    prompts: list[TokenizedPrompt],
    new_grammars: NewGrammars,
    *,
    must_rank: bool,
) -> list[SamplingParams]:
    """The params of each prompt. They differ in ``max_tokens`` only."""
    grammar, format_param = output_format(request)
    if grammar is not None:
        new_grammars.note(grammar, param=format_param)
    is_unlimited = request.max_tokens == -1
    max_tokens = [
        answer_length(
            prompt.token_ids,
            None if is_unlimited else request.max_tokens,
            model.info,
            param="prompt",
            default=None if is_unlimited else DEFAULT_MAX_TOKENS,
            is_clamped=model.settings.clamp_max_tokens,
        )
        for prompt in prompts
    ]
    common = sampling_params(
        request,
        max_tokens=max_tokens[0],
        logprobs=0 if request.logprobs is None and must_rank else request.logprobs,
        echo_logprobs=request.logprobs if request.echo else None,
        info=model.info,
        tokenizer=model.tokenizer,
        grammar=grammar,
    )
    return [msgspec.structs.replace(common, max_tokens=most) for most in max_tokens]


def _echoes(
    request: CompletionRequest, model: ServedModel, prompts: list[TokenizedPrompt]
) -> list[str] | None:
    """The text of each prompt if the response repeats it. Given text is repeated verbatim."""
    if not request.echo:
        return None
    skip = request.skip_special_tokens is not False
    return [
        model.tokenizer.decode(prompt.token_ids, skip_special_tokens=skip)
        if prompt.text is None
        else prompt.text
        for prompt in prompts
    ]
