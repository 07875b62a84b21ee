"""The flags of ``roseinfer chat``, and ChatSettings made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from core.contract.config import EngineConfig, ModelConfig
from server.settings.engine import ENGINE_FLAGS, MODEL_FLAGS
from server.settings.flags import Commands, Flag, FlagGroup, Switch, add_groups, named, variable
from server.settings.types import not_negative_number, positive, struct_of


class ChatSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to talk to, and how. ``serve`` are flags of the private server."""

    model: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    system: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    plain: bool = False
    serve: tuple[str, ...] = ()


_PRIVATE_FLAGS = (*MODEL_FLAGS, *ENGINE_FLAGS)

PASSED_ON = frozenset(variable(flag.name) for flag in _PRIVATE_FLAGS)
"""Environment variables that a private server obeys."""

_OWN_FLAGS = named(
    model=Flag(
        "hub id, directory or file of a model, which a private server then serves; "
        "with --base-url: the model id in requests",
        is_positional=True,
        unset="the first model of the server",
    ),
    base_url=Flag(
        "server to talk to, as http://127.0.0.1:8000/v1",
        metavar="URL",
        unset="a private server if MODEL is given; else the server on port 8000, "
        "or a private one of the built-in model if there is none",
    ),
    api_key=Flag("key that the server requires", metavar="KEY", unset="ROSEINFER_API_KEY"),
    system=Flag("system prompt", metavar="TEXT"),
    temperature=Flag(
        "sampling temperature", not_negative_number, metavar="T", unset="the server's"
    ),
    max_tokens=Flag("most tokens of an answer", positive, unset="what the context has room for"),
    plain=Switch("show answers as they come, without Markdown"),
)

CHAT_GROUPS = (
    FlagGroup("conversation", _OWN_FLAGS, (ChatSettings,)),
    FlagGroup("private server only", _PRIVATE_FLAGS, (ModelConfig, EngineConfig)),
)


def add_chat_command(commands: Commands, environ: Mapping[str, str]) -> None:
    parser = commands.add_parser(
        "chat",
        help="talk to a model in the terminal",
        description="Talk to a model: of a server (--base-url), or of a private server that "
        "starts with the chat and ends with it. /help lists the commands.",
    )

    def make(given: dict[str, Any]) -> ChatSettings:
        serve = tuple(_spelled(given))
        if serve and "base_url" in given:
            parser.error(f"{serve[0]} has a meaning only without --base-url")
        key = environ.get(variable("api-key"), "").partition(",")[0] or None
        return struct_of(ChatSettings, {"api_key": key} | given, serve=serve)

    parser.set_defaults(make_settings=make)
    add_groups(parser, CHAT_GROUPS)


def _spelled(given: Mapping[str, Any]) -> Iterator[str]:
    """Write the flags of a private server that were given as its command line."""
    for flag in _PRIVATE_FLAGS:
        if flag.dest in given:
            yield f"--{flag.name}"
            if not isinstance(flag, Switch):
                yield str(given[flag.dest])
