"""Unknown fields and schema keywords that are ignored: named in a header, and once in the log."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from litestar.types import HTTPScope

logger = logging.getLogger("roseinfer.server")

HEADER = b"x-roseinfer-ignored"
MAX_NAMES = 16
MAX_NAME_LENGTH = 128
MAX_LOGGED = 256
"""Names that a process logs at most."""

_KEY = "roseinfer_ignored_fields"
_UNSAFE = re.compile(r"[^A-Za-z0-9_.$-]")

_logged: set[str] = set()


def report_ignored(scope: HTTPScope, names: Iterable[str]) -> None:
    """Add names to the response's header, and log those that were never logged before.

    Other characters than letters, digits, ``_``, ``.``, ``$`` and ``-`` become ``?``.
    """
    safe = dict.fromkeys(_UNSAFE.sub("?", name[:MAX_NAME_LENGTH]) or "?" for name in names)
    if not safe:
        return
    scope["state"][_KEY] = scope["state"].get(_KEY, {}) | safe
    for name in list(safe)[:MAX_NAMES]:
        if name not in _logged and len(_logged) < MAX_LOGGED:
            _logged.add(name)
            logger.warning("ignoring '%s' of requests", name)


def ignored_names(scope: HTTPScope) -> list[str]:
    """Return the names that were reported; the last entry is the number of others."""
    names = list(scope.get("state", {}).get(_KEY, ()))
    more = [f"+{len(names) - MAX_NAMES}"] if len(names) > MAX_NAMES else []
    return names[:MAX_NAMES] + more


def ignored_header(names: list[str]) -> list[tuple[bytes, bytes]]:
    return [(HEADER, ", ".join(names).encode())] if names else []
