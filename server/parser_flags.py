"""Flags of the parsers of answers."""

from __future__ import annotations

from server.flag_types import Choice
from server.flags import Flag
from server.parsers.reasoning import REASONING_PARSERS
from server.parsers.tool import TOOL_PARSERS

AUTO, NONE = "auto", "none"
"""Values of a parser flag: found from the chat template, and no parser at all."""

PARSER_FLAGS: tuple[Flag, ...] = (
    Flag(
        name="tool-call-parser",
        help="format in which the model writes tool calls; auto: found from its chat template",
        convert=Choice((AUTO, NONE, *TOOL_PARSERS)),
    ),
    Flag(
        name="reasoning-parser",
        help="tags in which the model thinks; auto: found from its chat template",
        convert=Choice((AUTO, NONE, *REASONING_PARSERS)),
    ),
)
