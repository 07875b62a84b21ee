"""chat_job: a chat request to a Job, for every API with messages. Runs in a worker thread."""

from __future__ import annotations

import msgspec

from core.contract.errors import InvalidRequest
from core.contract.params import SamplingParams
from schemas.chat import ChatCompletionRequest
from server.grammars import NewGrammars
from server.job import Job
from server.render.chat_options import ChatOptions, NewRenderer
from server.served_model import ServedModel
from server.translate.answer_form import AnswerForm
from server.translate.chat_prompt import prompt_and_length
from server.translate.formats import output_format
from server.translate.params import sampling_params
from server.translate.response import check_shared_fields, new_envelope, new_job
from server.translate.tools import select_tools
from server.translate.unsupported import refuse_unsupported

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
