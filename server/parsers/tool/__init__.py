"""Tool-call formats, one module a family. A new family is a new module and its line here."""

from __future__ import annotations

from server.parsers.tool.deepseek import DeepseekParser
from server.parsers.tool.hermes import GenericParser, HermesParser
from server.parsers.tool.llama3_json import Llama3JsonParser
from server.parsers.tool.mistral import MistralParser
from server.parsers.tool.parser import CallParser
from server.parsers.tool.pythonic import PythonicParser
from server.parsers.tool.qwen3_coder import Qwen3CoderParser

_FAMILIES: dict[str, type[CallParser]] = {
    family.name: family
    for family in (
        DeepseekParser,
        MistralParser,
        Qwen3CoderParser,
        HermesParser,
        PythonicParser,
        Llama3JsonParser,
        GenericParser,
    )
}
"""In the order of detection: the first family that uses a chat template is the model's."""

GENERIC = GenericParser.name
"""The form of models whose chat template shows no tools."""

TOOL_PARSERS = tuple(_FAMILIES)
"""The names of the families."""


def tool_parser(name: str) -> type[CallParser]:
    """A family's parser; a fresh one is made for each choice."""
    return _FAMILIES[name]


def detect(chat_template: str | None) -> str | None:
    """The family whose format a chat template uses; None if it uses no known one."""
    template = chat_template or ""
    return next((name for name in _FAMILIES if _FAMILIES[name].is_used_by(template)), None)
