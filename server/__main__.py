"""The command line: ``roseinfer serve``, ``route``, ``quantize`` and ``bench``.

Also as ``python -m server serve``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from bench.flags import BenchSettings, add_bench_command
from server import quantize
from server.flags import Parser, new_program
from server.program import exit_process, set_up
from server.route.settings import RouteSettings, add_route_command
from server.settings import Settings, add_serve_command

if TYPE_CHECKING:
    from server.loaded import Loaded


AnySettings: TypeAlias = Settings | RouteSettings | BenchSettings | quantize.QuantizeSettings


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program and exit with its code."""
    for sig in (signal.SIGTERM, signal.SIGINT):  # until the server installs its own handlers
        signal.signal(sig, _exit_cleanly)
    settings = parse_command(sys.argv[1:] if argv is None else argv)
    match settings:
        case BenchSettings():
            exit_process(run_bench(settings))
        case quantize.QuantizeSettings():
            exit_process(run_quantize(settings))
        case RouteSettings():
            exit_process(run_route(settings))
        case Settings():
            exit_process(run(settings))


def parse_command(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> AnySettings:
    """Settings of ``roseinfer ARGV``. Exits with code 2 and one line on a wrong flag."""
    options = vars(build_parser(environ).parse_args(argv))
    del options["command"]
    make_settings: Callable[..., AnySettings] = options.pop("make_settings")
    return make_settings(options)


def build_parser(environ: Mapping[str, str] = os.environ) -> Parser:
    """Return the parser of the whole command line."""
    program, commands = new_program()
    add_serve_command(commands, environ)
    add_route_command(commands, environ)
    quantize.add_quantize_command(commands)
    add_bench_command(commands)
    return program


def run(settings: Settings, load: Callable[[], Loaded] | None = None) -> int:
    """Serve; return the exit code. ``load`` builds another engine than the settings name."""
    set_up(settings.log_level, settings.log_format)
    from server import process  # noqa: PLC0415 - imports torch: only once the flags are checked

    return process.run(settings, load)


def run_route(settings: RouteSettings) -> int:
    """Route; return the exit code."""
    set_up(settings.server.log_level, settings.server.log_format, computes=False)
    from server.route import run as router  # noqa: PLC0415 - imports an HTTP server

    return router.run(settings)


def run_bench(settings: BenchSettings) -> int:
    """Benchmark; return the exit code. A signal ends it with 128 plus the signal's number."""
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, _exit_interrupted)
    set_up("warning")
    from bench import command  # noqa: PLC0415 - imports torch: only once the flags are checked

    return command.run(settings)


def run_quantize(settings: quantize.QuantizeSettings) -> int:
    """Write a quantised file; return the exit code."""
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, _exit_interrupted)
    set_up("info")
    return quantize.run(settings)


def _exit_cleanly(_sig: int, _frame: object) -> None:
    raise SystemExit(0)


def _exit_interrupted(sig: int, _frame: object) -> None:
    raise SystemExit(128 + sig)


if __name__ == "__main__":
    main()
