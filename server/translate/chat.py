"""A chat request to a prompt and its SamplingParams. Takes long: runs in a worker thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from core.build import LoadedEngine
from core.contract.errors import InvalidRequest
from core.contract.params import SamplingParams
from schemas.chat import ChatCompletionRequest
from server.families import Families
from server.parsers.chain import ChoiceParser
from server.translate.answer_form import AnswerForm
from server.translate.formats import output_format
from server.translate.params import check_length, sampling_params
from server.translate.prompts import chat_prompt, truncate
from server.translate.tools import ToolPlan, tool_plan

PROMPT_TAIL = 16
"""Tokens at a prompt's end that are looked at for an opened thinking; more than its tag has."""


@dataclass(frozen=True, slots=True)
class ChatPlan:
    """What a chat request comes to. ``new_parser`` makes the parser of one choice, if any.

    ``tools`` has no callable ones where calls would not be told from text.
    """

    prompt: list[int]
    params: SamplingParams
    tools: ToolPlan
    new_parser: Callable[[], ChoiceParser] | None


def plan_chat(
    request: ChatCompletionRequest,
    loaded: LoadedEngine,
    families: Families,
    *,
    allow_template: bool,
) -> ChatPlan:
    """Render, tokenize, check all that takes the model's facts. Raises InvalidRequest."""
    tokenizer, info = loaded.tokenizer, loaded.info
    tools, text_format = tool_plan(request), output_format(request)
    if tools.shown and not (families.template_shows_tools or request.chat_template):
        raise InvalidRequest(
            "This model's chat template knows no tools.",
            param="tools",
            code="unsupported_parameter",
        )
    prompt = chat_prompt(request, tokenizer, tools=tools.shown, allow_template=allow_template)
    wanted = request.max_completion_tokens or request.max_tokens
    prompt = list(truncate(prompt, request, room=info.max_model_len - (wanted or 1)))
    max_tokens = check_length(len(prompt), wanted, info, param="messages")
    prompt_tail = tokenizer.decode(prompt[-PROMPT_TAIL:], skip_special_tokens=False)
    form = AnswerForm.of(request, tools, text_format, families, tokenizer, prompt_tail)
    params = sampling_params(
        request,
        max_tokens=max_tokens,
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        echo_logprobs=None,
        info=info,
        tokenizer=tokenizer,
        grammar=form.grammar(loaded.grammar_compiler),
        thinking=form.thinking,
        shows_markup=form.has_special_markup(tokenizer),
    )
    if form.tools.must_call:  # stop strings are for text, and a call that must be made cannot fail
        params = msgspec.structs.replace(params, stop=())
    return ChatPlan(prompt=prompt, params=params, tools=form.tools, new_parser=form.new_parser)
