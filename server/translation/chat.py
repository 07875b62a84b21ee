"""chat_job: a chat request to a Job, for every API with messages. Runs in a worker thread.

prompt_and_length: a conversation to token ids, and how long its answer may be.
"""

from __future__ import annotations

import msgspec

from core.contract.errors import InvalidRequest
from core.contract.params import SamplingParams
from schemas.chat import ChatCompletionRequest
from server.generation.job import Job, NewGrammars
from server.generation.model import ServedModel
from server.rendering.deltas import ChatOptions, NewRenderer
from server.translation.answer_form import AnswerForm
from server.translation.formats import output_format
from server.translation.params import answer_length, sampling_params
from server.translation.prompt_size import size_check
from server.translation.prompts import chat_prompt, truncate
from server.translation.shared_fields import (
    check_shared_fields,
    new_envelope,
    new_job,
    refuse_unsupported,
)
from server.translation.tools import select_tools


def prompt_and_length(
    request: ChatCompletionRequest,
    model: ServedModel,
    tools: list[dict[str, object]],
    *,
    clamps_length: bool = False,
) -> tuple[list[int], int]:
    """The prompt's ids, and the most tokens to generate. Raises InvalidRequest.

    ``clamps_length``: instead of more tokens than the context has room for, as many as fit.
    """
    allow_template = model.settings.trust_request_chat_template
    prompt = chat_prompt(
        request,
        model.tokenizer,
        tools=tools,
        allow_template=allow_template,
        families=model.families,
        check_size=size_check(request, model, param="messages"),
    )
    wanted = _wanted_tokens(request)
    prompt = list(truncate(prompt, request, room=model.info.max_model_len - (wanted or 1)))
    return prompt, answer_length(
        prompt,
        wanted,
        model.info,
        param="messages",
        is_clamped=clamps_length or model.settings.clamp_max_tokens,
    )


def _wanted_tokens(request: ChatCompletionRequest) -> int | None:
    """The limit of generated tokens that was asked for. None: until the context is full."""
    wanted = request.max_completion_tokens or request.max_tokens
    return None if wanted == -1 else wanted


PROMPT_TAIL = 16
"""Tokens at the prompt's end that may contain the opening tag of thinking. No tag has so many."""


def chat_job(
    request: ChatCompletionRequest,
    model: ServedModel,
    *,
    id_prefix: str,
    new_renderer: NewRenderer,
    clamps_length: bool = False,
) -> Job:
    """Check the fields, render the chat template and tokenize. Raises InvalidRequest.

    Other APIs with messages translate to a chat request and bring their own renderer. With
    ``clamps_length`` the limit of tokens may be above what the context has room for.
    """
    model.check_generates()
    _check_fields(request)
    tools, text_format = select_tools(request), output_format(request)
    families = model.families
    if tools.shown and not (
        families.template_shows_tools
        or families.writes_tools
        or families.chat_template is None  # rendering says so
        or request.chat_template
    ):
        raise InvalidRequest(
            "This model's chat template shows no tools. The operator can serve them with "
            "--tool-call-parser generic.",
            param="tools",
            code="unsupported_parameter",
        )
    prompt, max_tokens = prompt_and_length(request, model, tools.shown, clamps_length=clamps_length)
    prompt_tail = model.tokenizer.decode(prompt[-PROMPT_TAIL:], skip_special_tokens=False)
    form = AnswerForm.of(request, tools, text_format, model.families, model.tokenizer, prompt_tail)
    new_grammars = NewGrammars(model.grammar_compiler)
    params = _params(request, model, form, new_grammars, max_tokens)
    envelope = new_envelope(
        request,
        model,
        id_prefix=id_prefix,
        prompts=[prompt],
        num_choices=request.n or 1,
        num_top=params.logprobs,
        new_grammars=new_grammars,
    )
    options = ChatOptions(
        new_parser=form.new_parser,
        call_finish_reason="stop" if form.tools.is_named else "tool_calls",
        shows_reasoning=request.include_reasoning is not False,
    )
    renderer = new_renderer(envelope, options)
    return new_job(request, model, envelope, [params], renderer, new_grammars)


def _check_fields(request: ChatCompletionRequest) -> None:
    """Checks that need no model."""
    check_shared_fields(request)
    if request.top_logprobs and not request.logprobs:
        raise InvalidRequest(
            "top_logprobs is only allowed when logprobs is true.",
            param="top_logprobs",
            code="invalid_parameter_combination",
        )
    for name in ("max_completion_tokens", "max_tokens"):
        if getattr(request, name) == 0:
            raise InvalidRequest(
                f"Invalid '{name}': Expected a number of at least 1, or -1 for no limit.",
                param=name,
                code="integer_below_min_value",
            )
    refuse_unsupported(request)


def _params(
    request: ChatCompletionRequest,
    model: ServedModel,
    form: AnswerForm,
    new_grammars: NewGrammars,
    max_tokens: int,
) -> SamplingParams:
    params = sampling_params(
        request,
        max_tokens=max_tokens,
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        echo_logprobs=None,
        info=model.info,
        tokenizer=model.tokenizer,
        grammar=form.grammar(new_grammars),
        thinking=form.thinking,
        shows_markup=form.has_special_markup(model.tokenizer),
    )
    if form.tools.must_call:  # a stop string would cut a call that the grammar guarantees
        params = msgspec.structs.replace(params, stop=())
    return params
