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
    """Return a family's parser; a fresh one is made for each choice. ValueError: no such family."""
    if name not in _FAMILIES:
        message = f"no tool-call parser is called {name!r}; there are {', '.join(TOOL_PARSERS)}"
        raise ValueError(message)
    return _FAMILIES[name]


def detect(chat_template: str | None) -> str | None:
    """Return the family whose format a chat template uses; None if it uses no known one."""
    if chat_template is None:
        return None
    families = _FAMILIES.values()
    return next((family.name for family in families if family.is_used_by(chat_template)), None)
