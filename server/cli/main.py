"""The program ``roseinfer``, also as ``python -m server``: runs the command that it is given."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

try:
    from bench.flags import BenchSettings, add_bench_command
    from core.assembly.weights_ahead import touch_ahead
    from core.system import torch_import
    from server.cli.chat.flags import ChatSettings, add_chat_command
    from server.cli.doctor.command import DoctorSettings, add_doctor_command
    from server.cli.program import exit_process, set_up, set_up_server
    from server.cli.quantize import QuantizeSettings, add_quantize_command, run_quantize
    from server.router.config.settings import RouteSettings, add_route_command
    from server.settings.flags import FlagParser, new_program
    from server.settings.settings import Settings, add_serve_command
except KeyboardInterrupt:  # Python's own handler, until main sets others
    raise SystemExit(128 + signal.SIGINT) from None

if TYPE_CHECKING:
    from server.generation.model import Loaded

AnySettings: TypeAlias = (
    Settings | RouteSettings | BenchSettings | QuantizeSettings | ChatSettings | DoctorSettings
)


def main(argv: Sequence[str] | None = None) -> None:
    for sig in (signal.SIGTERM, signal.SIGINT):  # until the server installs its own handlers
        signal.signal(sig, _exit_cleanly)
    exit_process(_run(parse_command(sys.argv[1:] if argv is None else argv)))


def parse_command(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> AnySettings:
    """Settings of ``roseinfer ARGV``. Exits with code 2 and one line on a wrong flag."""
    options = vars(build_parser(environ).parse_args(argv))
    make_settings: Callable[..., AnySettings] = options["make_settings"]
    return make_settings(options)


def build_parser(environ: Mapping[str, str] = os.environ) -> FlagParser:
    program, commands = new_program()
    add_serve_command(commands, environ)
    add_route_command(commands, environ)
    add_chat_command(commands, environ)
    add_doctor_command(commands, environ)
    add_quantize_command(commands)
    add_bench_command(commands)
    return program


def _run(settings: AnySettings) -> int:
    """Run a command; return the exit code. Modules that import much wait for the flags' check."""
    match settings:
        case Settings():
            return run(settings)
        case RouteSettings():
            return run_route(settings)
        case ChatSettings():
            from server.cli.chat import chat  # noqa: PLC0415

            return chat.run(settings)
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, _exit_interrupted)
    match settings:
        case QuantizeSettings():
            set_up("info")
            return run_quantize(settings)
        case DoctorSettings():
            set_up("error")
            from server.cli.doctor import command as doctor  # noqa: PLC0415

            return doctor.run(settings)
        case BenchSettings():
            set_up("warning")
            from bench import command as bench  # noqa: PLC0415

            return bench.run(settings)


def run(settings: Settings, load: Callable[[], Loaded] | None = None) -> int:
    """Serve; return the exit code. ``load`` builds another engine than the settings name."""
    set_up_server(settings)
    if load is None:
        touch_ahead(settings.model)
    torch_import.import_torch()
    from server.cli import serve  # noqa: PLC0415 - imports torch

    return serve.run(settings, load)


def run_route(settings: RouteSettings) -> int:
    set_up(settings.server.log_level, settings.server.log_format, computes=False)
    from server.router import run as router  # noqa: PLC0415 - imports an HTTP server

    return router.run(settings)


def _exit_cleanly(_sig: int, _frame: object) -> None:
    raise SystemExit(0)


def _exit_interrupted(sig: int, _frame: object) -> None:
    raise SystemExit(128 + sig)
