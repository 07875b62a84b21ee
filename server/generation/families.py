"""The conventions of the served model's family for tool calls and thinking."""

from __future__ import annotations

from dataclasses import dataclass

from core.contract.errors import InvalidRequest
from core.contract.grammar import CallMarkup
from core.text.tokenizer import Tokenizer
from server.parsers import reasoning, tool
from server.parsers.reasoning import ThinkingTags
from server.parsers.tool.parser import CallParser
from server.settings.serve import AUTO, NONE
from server.settings.settings import Settings

FALLBACK_TOOLS = "hermes"
"""The format of a required call if the model's family has none."""


@dataclass(frozen=True, slots=True)
class Families:
    """Detected from the chat template, unless the operator chose them. None: the family has none.

    ``tool`` is generic if the template shows neither tools nor a known form of calls.
    ``thinks_by_default``: the model may begin to think although the prompt does not end with the
    opening tag. False if the template turns thinking on only when asked. ``takes_system``: the
    template shows system turns, with ``takes_late_system`` also after the first message.
    """

    tool: str | None
    reasoning: str | None
    thinks_by_default: bool
    takes_system: bool
    takes_late_system: bool
    chat_template: str | None

    @classmethod
    def of(cls, settings: Settings, tokenizer: Tokenizer) -> Families:
        chat_template = tokenizer.tool_template
        return cls(
            tool=_chosen(settings.tool_call_parser, _detected_tool(chat_template)),
            reasoning=_chosen(settings.reasoning_parser, reasoning.detect(tokenizer.chat_template)),
            thinks_by_default=_thinks_by_default(tokenizer),
            takes_system=_takes_system(tokenizer),
            takes_late_system=_takes_late_system(tokenizer),
            chat_template=chat_template,
        )

    @property
    def template_shows_tools(self) -> bool:
        """Whether the chat template uses ``tools``."""
        return _shows_tools(self.chat_template)

    @property
    def writes_tools(self) -> bool:
        """Whether tools, calls and results are text of ordinary turns, for lack of a template."""
        if self.tool is None or self.chat_template is None:
            return False
        if self.tool == tool.GENERIC:
            return True
        return not self.template_shows_tools and self.markup.arguments == "json"

    @property
    def markup(self) -> CallMarkup:
        """How the model writes calls. ``call_parser`` parses it."""
        return self.call_parser.markup_for(self.chat_template or "")

    @property
    def call_parser(self) -> type[CallParser]:
        return tool.tool_parser(self.tool or FALLBACK_TOOLS)

    @property
    def thinking_tags(self) -> ThinkingTags | None:
        return None if self.reasoning is None else reasoning.thinking_tags(self.reasoning)


def _detected_tool(chat_template: str | None) -> str | None:
    found = tool.detect(chat_template)
    if found is None and chat_template is not None and not _shows_tools(chat_template):
        return tool.GENERIC
    return found


def _shows_tools(chat_template: str | None) -> bool:
    return "tools" in (chat_template or "")


def _takes_system(tokenizer: Tokenizer) -> bool:
    """Whether a system turn is in the prompt: some templates refuse it, others leave it out."""
    content = "Be brief and polite."
    turns = [{"role": "system", "content": content}, {"role": "user", "content": "Hello"}]
    try:
        return content in tokenizer.render_chat(turns)
    except InvalidRequest:  # no template, or one that rejects this conversation
        return False


def _thinks_by_default(tokenizer: Tokenizer) -> bool:
    """Whether the prompt is the same without ``enable_thinking`` and with it."""
    try:
        default, enabled = (
            tokenizer.render_chat([{"role": "user", "content": "Hello"}], template_kwargs=kwargs)
            for kwargs in ({}, {"enable_thinking": True})
        )
    except InvalidRequest:  # no template, or one that rejects this conversation
        return True
    return default == enabled


def _takes_late_system(tokenizer: Tokenizer) -> bool:
    """Whether the template accepts and shows a system message between others."""
    mark = "late instructions"
    conversation = [
        {"role": "system", "content": "Hello"},
        {"role": "user", "content": "Hello"},
        {"role": "system", "content": mark},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Hello"},
    ]
    try:
        return mark in tokenizer.render_chat(conversation)
    except InvalidRequest:
        return False


def _chosen(name: str, detected: str | None) -> str | None:
    if name == AUTO:
        return detected
    return None if name == NONE else name
