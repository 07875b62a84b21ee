"""Patterns of strings: of formats, and in place of patterns that llguidance cannot read.

llguidance's own formats have digits without end (``duration``, fractions of a second), the year 0,
February 29 of every year, and small letters where RFC 3339 has capitals.
"""

from __future__ import annotations

from typing import Any

from core.grammar.matcher.keywords import with_children

_YEAR = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_MONTH_AND_DAY = (
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_MULTIPLE_OF_4 = "(?:0[48]|[2468][048]|[13579][26])"
_DATE = f"(?:{_YEAR}-{_MONTH_AND_DAY}|(?:[0-9]{{2}}{_MULTIPLE_OF_4}|{_MULTIPLE_OF_4}00)-02-29)"
_HOUR = "(?:[01][0-9]|2[0-3])"
_TIME = rf"{_HOUR}:[0-5][0-9]:[0-5][0-9](?:\.[0-9]{{1,9}})?(?:Z|[+-]{_HOUR}:[0-5][0-9])"
_Y, _M, _W, _D = "[0-9]{1,6}Y", "[0-9]{1,7}M", "[0-9]{1,8}W", "[0-9]{1,8}D"
_H, _S = "[0-9]{1,6}H", "[0-9]{1,7}S"
_DAYS = f"(?:{_Y}(?:{_M}(?:{_D})?)?|{_M}(?:{_D})?|{_D})"
_SECONDS = f"T(?:{_H}(?:{_M}(?:{_S})?)?|{_M}(?:{_S})?|{_S})"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"

DATES = {
    "date": f"^{_DATE}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "duration": f"^P(?:{_DAYS}(?:{_SECONDS})?|{_SECONDS}|{_W})$",
    "time": f"^{_TIME}$",
}
"""Formats of RFC 3339, within what Python and Pydantic read: dates of the calendar, durations of at
most 999,999,999 days and 2**32 seconds."""

RAW_FORMATS = DATES | {
    "ipv4": rf"^{_BYTE}(?:\.{_BYTE}){{3}}$",
    "uuid": "^[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$",
}
"""Formats that are enforced in text that is not JSON."""

EQUAL_PATTERNS = {
    r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$": (  # noqa: E501
        r"^([A-Za-z0-9_'+\-]+\.)*[A-Za-z0-9_'+\-]*[A-Za-z0-9_+-]"
        r"@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
    ),
}
"""Common patterns with look-around, and equal ones without: ``z.email()`` of zod 4."""


def with_patterns(schema: Any) -> Any:
    """A prepared schema with patterns in place of the formats in ``DATES``."""
    if not isinstance(schema, dict):
        return schema
    result = with_children(schema, with_patterns)
    pattern = DATES.get(result.get("format", ""))
    if pattern is not None:
        del result["format"]
        result["allOf"] = [*result.get("allOf", ()), {"pattern": pattern}]
    return result
