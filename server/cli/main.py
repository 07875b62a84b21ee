"""The program ``roseinfer``, also as ``python -m server``: runs the command that it is given."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

try:
    from core.system import torch_import
    from core.weights_ahead import touch_ahead
    from server.cli import quantize
    from server.cli.commands import (
        BenchSettings,
        ChatSettings,
        DoctorSettings,
        QuantizeSettings,
        RouteSettings,
        Settings,
        build_parser,
        parse_command,
    )
    from server.cli.program import exit_process, set_up, set_up_server
except KeyboardInterrupt:  # Python's own handler, until main sets others
    raise SystemExit(128 + signal.SIGINT) from None

if TYPE_CHECKING:
    from server.generation.model import Loaded


__all__ = ["build_parser", "exit_process", "parse_command"]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program and exit with its code."""
    for sig in (signal.SIGTERM, signal.SIGINT):  # until the server installs its own handlers
        signal.signal(sig, _exit_cleanly)
    settings = parse_command(sys.argv[1:] if argv is None else argv)
    match settings:
        case BenchSettings():
            exit_process(run_bench(settings))
        case QuantizeSettings():
            exit_process(run_quantize(settings))
        case RouteSettings():
            exit_process(run_route(settings))
        case ChatSettings():
            exit_process(run_chat(settings))
        case DoctorSettings():
            exit_process(run_doctor(settings))
        case Settings():
            exit_process(run(settings))


def run(settings: Settings, load: Callable[[], Loaded] | None = None) -> int:
    """Serve; return the exit code. ``load`` builds another engine than the settings name."""
    set_up_server(settings)
    if load is None:
        touch_ahead(settings.model)
    torch_import.import_torch()
    from server.cli import serve as process  # noqa: PLC0415 - imports torch: only once the flags are checked

    return process.run(settings, load)


def run_route(settings: RouteSettings) -> int:
    """Route; return the exit code."""
    set_up(settings.server.log_level, settings.server.log_format, computes=False)
    from server.router import run as router  # noqa: PLC0415 - imports an HTTP server

    return router.run(settings)


def run_bench(settings: BenchSettings) -> int:
    """Benchmark; return the exit code. A signal ends it with 128 plus the signal's number."""
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, _exit_interrupted)
    set_up("warning")
    from bench import command  # noqa: PLC0415 - imports torch: only once the flags are checked

    return command.run(settings)


def run_quantize(settings: QuantizeSettings) -> int:
    """Write a quantised file; return the exit code."""
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, _exit_interrupted)
    set_up("info")
    return quantize.run(settings)


def run_chat(settings: ChatSettings) -> int:
    """Talk to a model in the terminal; return the exit code."""
    from server.cli.chat import command  # noqa: PLC0415 - imports an HTTP client

    return command.run(settings)


def run_doctor(settings: DoctorSettings) -> int:
    """Check whether a server would start; return the exit code: 1 if something stops it."""
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, _exit_interrupted)
    set_up("error")
    from server.cli.doctor import command  # noqa: PLC0415 - only this command needs it

    return command.run(settings)


def _exit_cleanly(_sig: int, _frame: object) -> None:
    raise SystemExit(0)


def _exit_interrupted(sig: int, _frame: object) -> None:
    raise SystemExit(128 + sig)
