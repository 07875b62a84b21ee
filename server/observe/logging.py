"""The form of log lines."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_CONTROLS = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
}


class SafeFormatter(logging.Formatter):
    """Escapes control characters, so that no text of a client can begin a line of the log.

    Lines of a traceback are indented.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return super().formatMessage(record).translate(_CONTROLS)

    def formatException(self, ei: object) -> str:  # noqa: N802 - logging's name
        text = super().formatException(ei)  # type: ignore[arg-type]
        return "\n".join(f"  {line.translate(_CONTROLS)}" for line in text.split("\n"))


class JsonFormatter(logging.Formatter):
    """One JSON object a line, in ASCII.

    What a message's ``fields()`` returns stands beside time, level and logger.
    """

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


def log_to_stderr(level: str, log_format: str = "text") -> None:
    """Send log records of ``level`` and above to stderr, as ``text`` or ``json``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else SafeFormatter(FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    for noisy in ("httpx", "urllib3", "filelock", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether uvicorn logs something new: we log ourselves why we cut a response short."""
    return "without completing response" not in record.getMessage()
