"""JSON values and strings read from a Reader, as far as their text has come."""

from __future__ import annotations

from collections.abc import Callable

from server.parsers.json_scan import JsonScanner, Scan, StringScanner
from server.parsers.reader import Malformed, Reader, Steps

_HIGH, _LOW, _AFTER_LOW = "\ud800", "\udc00", "\ue000"
"""Where the high surrogates, the low surrogates and the characters after both begin."""


def read_value(
    reader: Reader, on_text: Callable[[str], object], *, only_object: bool = False
) -> Steps[None]:
    """Read one value; ``on_text`` gets its JSON text piece by piece, see JsonScanner.

    Raises Malformed at the first character that cannot be there, after the text before it.
    """
    scanner = JsonScanner(only_object=only_object)
    while True:
        reader.position, text = scanner.feed(reader.text, reader.position)
        on_text(text)
        if scanner.state is not Scan.RUNNING:
            break
        yield from reader.wait()
    if scanner.state is Scan.MALFORMED:
        raise Malformed


def read_string(reader: Reader) -> Steps[str]:
    """Read one string and return its meaning. Raises Malformed for anything else."""
    yield from reader.expect('"')
    pieces = []
    while (unit := (yield from peek_unit(reader))) is not None:
        pieces.append(unit[0])
        reader.position += unit[1]
    reader.position += 1
    return "".join(pieces)


def peek_unit(reader: Reader) -> Steps[tuple[str, int] | None]:
    """Return the next unit of a string's inside, without reading it; None at the closing quote.

    A unit is a run of plain characters or one escape (or two, a surrogate pair): its meaning,
    and its size in the text. Raises Malformed, also for a surrogate without its partner.
    """
    meaning, size = yield from _scan_unit(reader, 0)
    if not meaning:
        return None
    is_escape = reader.text[reader.position] == "\\"
    if not is_escape or not _HIGH <= meaning < _AFTER_LOW:
        return meaning, size
    yield from reader.wait_for(size + 1)
    if meaning >= _LOW:
        raise Malformed
    is_escape = reader.text[reader.position + size] == "\\"
    low, end = yield from _scan_unit(reader, size)
    if not is_escape or not _LOW <= low < _AFTER_LOW:
        raise Malformed
    return (meaning + low).encode("utf-16", "surrogatepass").decode("utf-16"), end


def _scan_unit(reader: Reader, offset: int) -> Steps[tuple[str, int]]:
    """Look at the unit that begins ``offset`` characters ahead.

    Returns its meaning, "" for the closing quote, and the offset of its end.
    """
    scanner = StringScanner()
    while not scanner.unit and scanner.state is Scan.RUNNING:
        yield from reader.wait_for(offset + 1)
        offset = scanner.step(reader.text, reader.position + offset) - reader.position
    if scanner.state is Scan.MALFORMED:
        raise Malformed
    return scanner.unit, offset
