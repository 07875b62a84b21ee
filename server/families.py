"""Which family's conventions the served model follows for tool calls and for thinking."""

from __future__ import annotations

from dataclasses import dataclass

from core.contract.errors import InvalidRequest
from core.contract.grammar import CallMarkup
from core.text.tokenizer import Tokenizer
from server.parsers import reasoning, tool
from server.parsers.reasoning.tags import TagParser
from server.parsers.tool.parser import CallParser
from server.settings import AUTO, NONE, Settings

FALLBACK_TOOLS = "hermes"
"""How calls are written that a request requires of a model with no way of its own."""


@dataclass(frozen=True, slots=True)
class Families:
    """Found from the chat template, unless the operator named them. None: there is none.

    ``thinks_unasked`` is whether the model may begin to think although the prompt has not begun
    for it: unless thinking is something that the template turns on only when asked.
    """

    tool: str | None
    reasoning: str | None
    thinks_unasked: bool
    chat_template: str | None

    @classmethod
    def of(cls, settings: Settings, tokenizer: Tokenizer) -> Families:
        """The operator's choice, or what the template tells."""
        chat_template = tokenizer.chat_template
        return cls(
            tool=_chosen(settings.tool_call_parser, tool.detect(chat_template)),
            reasoning=_chosen(settings.reasoning_parser, reasoning.detect(chat_template)),
            thinks_unasked=_thinks_unasked(tokenizer),
            chat_template=chat_template,
        )

    @property
    def template_shows_tools(self) -> bool:
        """Whether the chat template tells the model of tools at all."""
        return "tools" in (self.chat_template or "")

    @property
    def markup(self) -> CallMarkup:
        """How calls are written."""
        return self.call_parser.markup_for(self.chat_template or "")

    @property
    def call_parser(self) -> type[CallParser]:
        """Reads what ``markup`` writes."""
        return tool.tool_parser(self.tool or FALLBACK_TOOLS)

    @property
    def reasoning_parser(self) -> type[TagParser] | None:
        """Parts thinking from the answer."""
        return None if self.reasoning is None else reasoning.reasoning_parser(self.reasoning)


def _thinks_unasked(tokenizer: Tokenizer) -> bool:
    """Whether saying nothing of ``enable_thinking`` is the same as turning it on."""
    try:
        unasked, asked = (
            tokenizer.render_chat([{"role": "user", "content": "Hello"}], template_kwargs=kwargs)
            for kwargs in ({}, {"enable_thinking": True})
        )
    except InvalidRequest:  # the template takes no such conversation, or there is none
        return True
    return unasked == asked


def _chosen(name: str, found: str | None) -> str | None:
    if name == AUTO:
        return found
    return None if name == NONE else name
