"""text_job: a text completion request to a Job, for every API with prompts. In a worker thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from schemas.completions import CompletionRequest
from server.generation.job import Job, NewGrammars, new_job
from server.generation.model import ServedModel
from server.http.errors import conflicting
from server.rendering.base import Envelope, Renderer
from server.translation.formats import output_format
from server.translation.params import sampling_params
from server.translation.prompt_size import answer_length
from server.translation.prompts import TokenizedPrompt, completion_prompts, truncate
from server.translation.refusals import check_shared_fields, refuse_unsupported


def text_job(
    request: CompletionRequest,
    model: ServedModel,
    *,
    id_prefix: str,
    new_renderer: Callable[[Envelope, Sequence[TokenizedPrompt]], Renderer],
    default_length: int | None,
    clamps_length: bool = False,
) -> Job:
    """Check the fields and tokenize the prompts. Raises InvalidRequest.

    ``default_length`` is the limit of tokens of a request without one. None: until the context is
    full. With ``clamps_length`` the limit may be above what the context has room for.
    """
    model.check_generates()
    _check_fields(request)
    wanted = default_length if request.max_tokens is None else request.max_tokens
    if wanted == -1:  # until the context is full
        wanted = None
    prompts = completion_prompts(request, model)
    if request.truncate_prompt_tokens is not None:
        room = model.info.max_model_len - (1 if wanted is None else wanted)
        prompts = [TokenizedPrompt(truncate(one.token_ids, request, room=room)) for one in prompts]
    num_candidates = max(request.best_of or 1, request.n or 1)
    must_rank = num_candidates > (request.n or 1)
    new_grammars = NewGrammars(model.grammar_compiler)
    grammar, format_param = output_format(request)
    if grammar is not None:
        new_grammars.note(grammar, param=format_param)
    is_clamped = clamps_length or request.max_tokens is None or model.settings.clamp_max_tokens
    max_tokens = [
        answer_length(prompt.token_ids, wanted, model.info, param="prompt", is_clamped=is_clamped)
        for prompt in prompts
    ]
    params = sampling_params(
        request,
        max_tokens=max_tokens[0],
        logprobs=0 if request.logprobs is None and must_rank else request.logprobs,
        echo_logprobs=request.logprobs if request.echo else None,
        info=model.info,
        tokenizer=model.tokenizer,
        grammar=grammar,
    )
    return new_job(
        request,
        model,
        id_prefix=id_prefix,
        prompts=[prompt.token_ids for prompt in prompts],
        params=[msgspec.structs.replace(params, max_tokens=most) for most in max_tokens],
        num_choices=num_candidates,
        num_top=request.logprobs,
        new_grammars=new_grammars,
        new_renderer=lambda envelope: new_renderer(envelope, prompts),
    )


def _check_fields(request: CompletionRequest) -> None:
    """Checks that need no model."""
    check_shared_fields(request)
    num_candidates, num_best = request.best_of, request.n or 1
    if num_candidates is not None and num_candidates < num_best:
        raise conflicting("best_of", f"best_of ({num_candidates}) is below n ({num_best}).")
    if num_candidates is not None and num_candidates > 1 and request.stream:
        raise conflicting("best_of", "best_of cannot be streamed.")
    refuse_unsupported(request)
