"""The command ``roseinfer route`` and its flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from server.settings.flags import Commands, Flag, FlagGroup, add_groups, flag_of, named, variable
from server.settings.settings import SERVE_GROUPS, Settings
from server.settings.types import path, struct_of

_SHARED = {
    "server": ("host", "port", "drain-timeout", "keep-alive-interval", "log-level", "log-format"),
    "load": ("max-body-size", "rate-limit"),
    "access": (
        "api-key",
        "api-key-file",
        "allowed-hosts",
        "allowed-origins",
        "forwarded-allow-ips",
    ),
    "connections": (
        "uds",
        "ssl-certfile",
        "ssl-keyfile",
        "max-connections",
        "idle-timeout",
        "write-timeout",
    ),
}
"""Flags of ``serve`` that mean the same here."""


class RouteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a router. ``server`` is its front: of it, no model is loaded."""

    config: str  # path of the file of ``server.router.config.config``
    server: Settings


_CONFIG = Flag(
    "TOML file of the models; see docs/routing.md",
    path,
    metavar="FILE",
    unset="none: it has to be given",
)

ROUTE_GROUPS = (
    FlagGroup("models", named(config=_CONFIG), ()),
    *(
        FlagGroup(
            each.title, tuple(flag_of(each.flags, n) for n in _SHARED[each.title]), (Settings,)
        )
        for each in SERVE_GROUPS
        if each.title in _SHARED
    ),
)


def add_route_command(commands: Commands, environ: Mapping[str, str]) -> None:
    parser = commands.add_parser(
        "route",
        help="serve many models at one address, each by a process of its own",
        description="Pass requests on to servers of models, by the field 'model'. Load and unload "
        "models as requests need them.",
    )

    def make(options: dict[str, Any]) -> RouteSettings:
        config, rates = options["config"], options["rate_limit"]
        if config is None:
            parser.error("--config is required")
        if rates is not None and rates.tokens:
            parser.error("--rate-limit: a router counts requests, not tokens")
        return RouteSettings(config=config, server=struct_of(Settings, options))

    parser.set_defaults(make_settings=make)
    add_groups(parser, ROUTE_GROUPS, environ)


def environ_of_models(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the router's own flags: its port and its keys are not theirs."""
    own = {variable(flag.name) for group in ROUTE_GROUPS for flag in group.flags}
    own |= {"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"}  # the service is the router
    return {name: value for name, value in environ.items() if name not in own}
