"""The commands of ``roseinfer``: from a command line to settings of one of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from bench.flags import BenchSettings, add_bench_command
from server.cli.chat.flags import ChatSettings, add_chat_command
from server.cli.doctor.flags import DoctorSettings, add_doctor_command
from server.cli.quantize import QuantizeSettings, add_quantize_command
from server.router.config.settings import RouteSettings, add_route_command
from server.settings.flags import FlagParser, new_program
from server.settings.settings import Settings, add_serve_command

__all__ = [
    "BenchSettings",
    "ChatSettings",
    "DoctorSettings",
    "QuantizeSettings",
    "RouteSettings",
    "Settings",
]

AnySettings: TypeAlias = (
    Settings | RouteSettings | BenchSettings | QuantizeSettings | ChatSettings | DoctorSettings
)


def parse_command(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> AnySettings:
    """Settings of ``roseinfer ARGV``. Exits with code 2 and one line on a wrong flag."""
    options = vars(build_parser(environ).parse_args(argv))
    del options["command"]
    make_settings: Callable[..., AnySettings] = options.pop("make_settings")
    return make_settings(options)


def build_parser(environ: Mapping[str, str] = os.environ) -> FlagParser:
    """Return the parser of the whole command line."""
    program, commands = new_program()
    add_serve_command(commands, environ)
    add_route_command(commands, environ)
    add_chat_command(commands, environ)
    add_doctor_command(commands, environ)
    add_quantize_command(commands)
    add_bench_command(commands)
    return program
