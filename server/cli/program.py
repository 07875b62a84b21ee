"""The set-up of a process before its command, the form of its log, and its end."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any, NoReturn

from core.system.machine import num_cores
from server.process import heap
from server.settings.settings import Settings

SWITCH_INTERVAL = 0.0005  # seconds after which the core thread releases the GIL to the event loop


def set_up_server(settings: Settings) -> None:
    """Prepare the process of a server or of a replica, before torch is imported."""
    heap.collect_rarely()  # until the model is loaded
    set_up(settings.log_level, settings.log_format)
    sys.setswitchinterval(SWITCH_INTERVAL)


def set_up(log_level: str, log_format: str = "text", *, computes: bool = True) -> None:
    """Log to stderr. If the command computes, also set what torch reads when it is imported."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else SafeFormatter(FORMAT))
    logging.basicConfig(level=log_level.upper(), handlers=[handler])
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    for noisy in ("httpx", "urllib3", "filelock", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    if not computes:
        return

    # Read when torch is imported. Its own default counts simultaneous threads and ignores quotas.
    os.environ.setdefault("OMP_NUM_THREADS", str(num_cores()))

    # OpenMP threads spin while they wait for each other. GNU's default spins so long that steps
    # get far slower on a machine with other work; not spinning is slow on an idle one.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "5000")


def exit_process(code: int) -> NoReturn:
    """Exit without finalizing the interpreter.

    That would wait for a core thread in a step, and let libraries that leak print warnings.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_CONTROLS = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
}


class SafeFormatter(logging.Formatter):
    """Escapes control characters: no text of a client can begin a line. Indents tracebacks."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return super().formatMessage(record).translate(_CONTROLS)

    def formatException(self, ei: object) -> str:  # noqa: N802 - logging's name
        text = super().formatException(ei)  # type: ignore[arg-type]
        return "\n".join(f"  {line.translate(_CONTROLS)}" for line in text.split("\n"))


class JsonFormatter(logging.Formatter):
    """One JSON object a line, in ASCII: time, level, logger, the message or its ``fields()``."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if hasattr(record.msg, "fields"):
            line |= record.msg.fields()
        else:
            line["message"] = record.getMessage()
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, separators=(",", ":"))


def _is_news(record: logging.LogRecord) -> bool:
    """Whether uvicorn logs something new: we log ourselves why we cut a response short."""
    return "without completing response" not in record.getMessage()
