"""Tool-call formats, one class a family. A new family is a new class and its line here."""

from __future__ import annotations

from server.parsers.tool.deepseek import DeepseekParser
from server.parsers.tool.json_call import GenericParser, HermesParser, Llama3JsonParser
from server.parsers.tool.mistral import MistralParser
from server.parsers.tool.parser import CallParser
from server.parsers.tool.pythonic import PythonicParser
from server.parsers.tool.qwen3_coder import Qwen3CoderParser

TOOL_PARSERS: dict[str, type[CallParser]] = {
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
"""The families' parsers, by name; a fresh one is made for each choice.

In the order of detection: the first family that uses a chat template is the model's.
"""

GENERIC = GenericParser.name  # the form of models whose chat template shows no tools


def detect(chat_template: str | None) -> str | None:
    """The family whose format a chat template uses; None if it uses no known one."""
    template = chat_template or ""
    families = TOOL_PARSERS.items()
    return next((name for name, family in families if family.is_used_by(template)), None)
