"""chat_job: a chat request to a Job, for every API with messages. Runs in a worker thread."""

from __future__ import annotations

from functools import partial

import msgspec

from core.contract.errors import InvalidRequest
from core.contract.grammar import Grammar, after
from core.contract.params import Thinking
from schemas.chat import ChatCompletionRequest
from server.generation.job import Job, NewGrammars, new_job
from server.generation.model import ServedModel
from server.http.errors import conflicting, unsupported
from server.rendering.base import ChatOptions, NewRenderer
from server.translation.formats import output_format
from server.translation.params import sampling_params
from server.translation.prompt_size import answer_length, size_check
from server.translation.prompts import chat_prompt, truncate
from server.translation.refusals import check_shared_fields, refuse_unsupported
from server.translation.tools import ToolSelection, select_tools

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
    _check_tools(request, model, tools)
    prompt, max_tokens = _prompt_and_length(request, model, tools, clamps_length=clamps_length)
    if not tools.must_call and model.families.tool is None:
        tools = ToolSelection()  # the markup of calls is unknown: all text is content
    has_grammar = text_format[0] is not None or tools.must_call
    thinking = _thinking(request, model, prompt, is_constrained=has_grammar)
    new_grammars = NewGrammars(model.grammar_compiler)
    params = sampling_params(
        request,
        max_tokens=max_tokens,
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        echo_logprobs=None,
        info=model.info,
        tokenizer=model.tokenizer,
        grammar=_grammar(request, model, tools, text_format, thinking, new_grammars),
        thinking=thinking,
        shows_markup=_has_special_markup(model, tools, thinking),
    )
    if tools.must_call:  # a stop string would cut a call that the grammar guarantees
        params = msgspec.structs.replace(params, stop=())
    options = ChatOptions(
        new_parser=partial(model.families.call_parser, tools.callable, parallel=tools.is_parallel)
        if tools.callable
        else None,
        call_finish_reason="stop" if tools.is_named else "tool_calls",
        shows_reasoning=request.include_reasoning is not False,
    )
    return new_job(
        request,
        model,
        id_prefix=id_prefix,
        prompts=[prompt],
        params=[params],
        num_choices=request.n or 1,
        num_top=params.logprobs,
        new_grammars=new_grammars,
        new_renderer=lambda envelope: new_renderer(envelope, options),
    )


def _check_fields(request: ChatCompletionRequest) -> None:
    """Checks that need no model."""
    check_shared_fields(request)
    if request.top_logprobs and not request.logprobs:
        raise conflicting("top_logprobs", "top_logprobs is only allowed when logprobs is true.")
    for name in ("max_completion_tokens", "max_tokens"):
        if getattr(request, name) == 0:
            message = f"Invalid '{name}': Expected a number of at least 1, or -1 for no limit."
            raise InvalidRequest(message, param=name, code="integer_below_min_value")
    refuse_unsupported(request)


def _check_tools(request: ChatCompletionRequest, model: ServedModel, tools: ToolSelection) -> None:
    """Refuse tools that the prompt would not show."""
    families = model.families
    if tools.shown and not (
        families.template_shows_tools
        or families.writes_tools
        or families.chat_template is None  # rendering says so
        or request.chat_template
    ):
        raise unsupported(
            "tools",
            "This model's chat template shows no tools. The operator can serve them with "
            "--tool-call-parser generic.",
        )


def _prompt_and_length(
    request: ChatCompletionRequest, model: ServedModel, tools: ToolSelection, *, clamps_length: bool
) -> tuple[list[int], int]:
    """The prompt's ids, and the most tokens to generate. Raises InvalidRequest."""
    check_size = size_check(request, model, param="messages")
    prompt = chat_prompt(request, model, tools=tools.shown, check_size=check_size)
    wanted = request.max_completion_tokens or request.max_tokens
    if wanted == -1:  # until the context is full
        wanted = None
    prompt = list(truncate(prompt, request, room=model.info.max_model_len - (wanted or 1)))
    is_clamped = clamps_length or model.settings.clamp_max_tokens
    length = answer_length(prompt, wanted, model.info, param="messages", is_clamped=is_clamped)
    return prompt, length


def _thinking(
    request: ChatCompletionRequest, model: ServedModel, prompt: list[int], *, is_constrained: bool
) -> Thinking | None:
    """The marks of thinking in the output. None: tags in it are plain text.

    Thinking is not expected if it has to be turned on and was not, or if the prompt has ended it.
    A constrained output then has none: the constraint applies from the first character on.
    """
    budget = request.thinking_token_budget
    if budget == -1:
        budget = None
    tags = model.families.thinking_tags
    if tags is None:
        if budget is not None:
            raise unsupported(
                "thinking_token_budget",
                "This model does not think, so it takes no thinking_token_budget.",
            )
        return None
    tail = model.tokenizer.decode(prompt[-PROMPT_TAIL:], skip_special_tokens=False).rstrip()
    is_open = tail.endswith(tags.begin)
    is_expected = is_open or (model.families.thinks_by_default and not tail.endswith(tags.end))
    is_separate = request.separate_reasoning is not False
    if not is_expected and (is_constrained or not is_separate):
        return None
    return Thinking(
        begin=tags.begin,
        end=tags.end,
        end_token_ids=tuple(model.tokenizer.encode(tags.end, add_special_tokens=False)),
        is_open=is_open,
        budget=budget,
        is_expected=is_expected,
        is_separate=is_separate,
    )


def _grammar(
    request: ChatCompletionRequest,
    model: ServedModel,
    tools: ToolSelection,
    text_format: tuple[Grammar | None, str | None],
    thinking: Thinking | None,
    new_grammars: NewGrammars,
) -> Grammar | None:
    """The grammar of the whole output, if any. Notes what must be compiled for it."""
    grammar, format_param = text_format
    param = format_param
    if tools.callable:
        if grammar is not None:  # so that the error names the field at fault
            new_grammars.note(grammar, param=param)
        grammar = tools.grammar(model.families.markup, grammar)
        param = "functions" if request.functions else "tools"
    if grammar is None:
        return None
    if thinking is not None and thinking.is_expected:
        begin = None if thinking.is_open else thinking.begin
        grammar = after(grammar, thinking.end, begin=begin)
    new_grammars.note(grammar, param=param, format_param=format_param)
    return grammar


def _has_special_markup(
    model: ServedModel, tools: ToolSelection, thinking: Thinking | None
) -> bool:
    """Whether tags or call markup are special tokens, so that the text must include these."""
    markers = [*model.families.call_parser.markers] if tools.callable else []
    if thinking is not None and thinking.is_expected:
        markers += [thinking.begin, thinking.end]
    return any(
        len(ids) == 1 and ids[0] in model.tokenizer.special_ids
        for marker in markers
        if (ids := model.tokenizer.encode(marker, add_special_tokens=False))
    )
