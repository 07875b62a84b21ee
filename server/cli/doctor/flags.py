"""The flags of ``roseinfer doctor``: those of ``serve``, and its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from server.settings.flags import Commands, FlagGroup, Switch, add_groups, named
from server.settings.settings import SERVE_GROUPS, Settings, settings_of


class DoctorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The server to check, and the form of the report."""

    serve: Settings
    json: bool = False


DOCTOR_GROUP = FlagGroup(
    "doctor", named(json=Switch("print the findings as JSON")), (DoctorSettings,)
)


def add_doctor_command(commands: Commands, environ: Mapping[str, str]) -> None:
    """Add ``roseinfer doctor``; ``make_settings`` among its options makes DoctorSettings."""
    parser = commands.add_parser(
        "doctor",
        help="check whether a server would start here",
        description="Check Python, torch, CPU, kernels, memory, threads, CUDA, the port and, if "
        "one is named, a model, with the flags that `serve` would get. Exit code 1: something "
        "would stop the start.",
    )

    def make(options: dict[str, Any]) -> DoctorSettings:
        as_json = options.pop("json")
        return DoctorSettings(serve=settings_of(options), json=as_json)

    parser.set_defaults(make_settings=make)
    add_groups(parser, (DOCTOR_GROUP, *SERVE_GROUPS), environ)
