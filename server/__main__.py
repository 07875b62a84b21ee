"""The command line: ``roseinfer serve`` and ``bench``, also as ``python -m server serve``."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from bench.settings import BenchSettings
from server import heap
from server.settings import Settings, parse_command

if TYPE_CHECKING:
    from core.build import LoadedEngine


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program and exit with its code."""
    for sig in (signal.SIGTERM, signal.SIGINT):  # until the server has handlers of its own
        signal.signal(sig, _exit_cleanly)
    settings = parse_command(sys.argv[1:] if argv is None else argv)
    exit_process(run_bench(settings) if isinstance(settings, BenchSettings) else run(settings))


def run(settings: Settings, load: Callable[[], LoadedEngine] | None = None) -> int:
    """Serve; returns the exit code. ``load`` builds another engine than the settings name."""
    _set_up(settings.log_level)
    from server import process  # noqa: PLC0415 - the heavy imports, after flags are known good

    return process.run(settings, load)


def run_bench(settings: BenchSettings) -> int:
    """Measure; returns the exit code. A signal ends it with the code that shells give to one."""
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, _exit_interrupted)
    _set_up("warning")
    from bench import command  # noqa: PLC0415 - the heavy imports, after flags are known good

    return command.run(settings)


def _set_up(log_level: str) -> None:
    heap.grow()
    logging.basicConfig(
        level=log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    for noisy in ("httpx", "urllib3", "filelock", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)

    # Torch's threads spin while they wait for each other, by default so long that a machine with
    # other work gets fifty times slower, and not at all is slow on an idle one: spin briefly.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "5000")


def exit_process(code: int) -> NoReturn:
    """Exit at once: everything of ours has been stopped by now, or is stuck in a long call.

    Taking the interpreter apart would only free what the system frees anyway, wait for a core
    thread that is still inside a step, and make libraries that leak at exit say so.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether uvicorn tells what we do not know: we cut answers on purpose, and log why."""
    return "without completing response" not in record.getMessage()


def _exit_cleanly(_sig: int, _frame: object) -> None:
    raise SystemExit(0)


def _exit_interrupted(sig: int, _frame: object) -> None:
    raise SystemExit(128 + sig)


if __name__ == "__main__":
    main()
