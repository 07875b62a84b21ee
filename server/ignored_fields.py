"""Reports request fields that the API does not have: in a response header, and once in the log."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from litestar.types import HTTPScope

logger = logging.getLogger("roseinfer.server")

HEADER = b"x-roseinfer-ignored"
MAX_NAMES = 16
MAX_NAME_LENGTH = 64
MAX_LOGGED = 256
"""Names that a process logs at most."""

_KEY = "roseinfer_ignored_fields"
_UNSAFE = re.compile(r"[^A-Za-z0-9_.$-]")

_logged: set[str] = set()


def report_ignored(scope: HTTPScope, names: Iterable[str]) -> None:
    """Put names into the response's header, and log those that were never logged before.

    Other characters than letters, digits, ``_``, ``.``, ``$`` and ``-`` become ``?``.
    """
    safe = list(dict.fromkeys(_UNSAFE.sub("?", name[:MAX_NAME_LENGTH]) or "?" for name in names))
    shown = safe[:MAX_NAMES]
    if not shown:
        return
    more = [f"+{len(safe) - MAX_NAMES}"] if len(safe) > MAX_NAMES else []
    scope["state"][_KEY] = ", ".join(shown + more).encode()
    for name in shown:
        if name not in _logged and len(_logged) < MAX_LOGGED:
            _logged.add(name)
            logger.warning("ignoring the unknown field '%s' of requests", name)


def ignored_header(scope: HTTPScope) -> list[tuple[bytes, bytes]]:
    """Return the header of a response, if there is anything to report."""
    value = scope.get("state", {}).get(_KEY)
    return [] if value is None else [(HEADER, value)]
