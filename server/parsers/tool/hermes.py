"""Hermes, Qwen 2.5, Qwen 3 and the built-in model: a JSON object between ``<tool_call>`` tags.

The generic form, for models whose chat template shows no tools, is the same or bare.
"""

from typing import ClassVar

from core.contract.grammar import CallMarkup
from server.parsers.tool.json_call import JsonCallParser

_BEGIN, _END = "<tool_call>", "</tool_call>"


class HermesParser(JsonCallParser):
    r"""``<tool_call>\n{"name": "f", "arguments": {…}}\n</tool_call>``, one pair of tags a call."""

    name = "hermes"
    signs: ClassVar[tuple[tuple[str, ...], ...]] = ((_BEGIN,),)
    foreign = ("<parameter=", "<arg_key>")  # Qwen 3 Coder, GLM
    begin_tags = (_BEGIN,)
    end_tags = (_END,)
    openings: ClassVar[tuple[str, ...]] = (_BEGIN,)
    markers = (_BEGIN, _END)
    markup = CallMarkup(
        trigger=_BEGIN,
        before=_BEGIN + '\n{"name": "{name}", "arguments": ',
        after="}\n" + _END,
        between="\n",
    )


class GenericParser(HermesParser):
    """``server.translation.messages`` asks for the Hermes form in the prompt.

    A model that was not trained on it may forget the tags.
    """

    name = "generic"
    signs = ()  # it is no template's own form
    openings = (_BEGIN, "{")
    is_bare = True
