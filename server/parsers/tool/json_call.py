"""JsonCallParser: base of the families that write a call as ``{"name": …, "arguments": {…}}``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from server.parsers.json_scan import JsonScanner, Scan, after_blanks
from server.parsers.reader import Malformed, Steps, peek_unit, read_string, read_value
from server.parsers.tool.parser import CallParser

_ARGUMENTS = ("arguments", "parameters")
_OTHERS = frozenset({"type", "id"})


@dataclass(slots=True)
class _Call:
    """The call object that is being read."""

    name: str | None = None
    has_arguments: bool = False
    early: list[str] = field(default_factory=list)
    """Arguments that came before the name."""


class JsonCallParser(CallParser):
    """Reads call objects.

    Members may come in any order; arguments before the name are held until it comes. Arguments
    are an object, the same object as a JSON string, or none: null, a blank string or no member.
    Other members are dropped. In a family that is ``_strict``, a member other than name,
    arguments, ``type`` and ``id`` shows that this is some other JSON, which is content to its
    end.
    """

    _strict: ClassVar[bool] = False

    def _read_call(self) -> Steps[None]:
        """Read one call object, which begins at the reader's position, and report it."""
        reader, call = self._reader, _Call()
        offset = reader.position - reader.mark  # the mark stays until the call is reported
        yield from reader.expect("{")
        yield from reader.blanks()
        if (yield from reader.accept("}")):
            raise Malformed
        while True:
            key = yield from read_string(reader)
            yield from reader.blanks()
            yield from reader.expect(":")
            yield from reader.blanks()
            if not (yield from self._read_member(call, key)):
                reader.position = reader.mark + offset
                yield from self._read_value_as_content()
                return
            yield from reader.blanks()
            if (yield from reader.accept("}")):
                break
            yield from reader.expect(",")
            yield from reader.blanks()
        if call.name is None:
            raise Malformed
        if not self._emitter.is_open:
            self._begin(call.name)
            self._report("{}")

    def _read_member(self, call: _Call, key: str) -> Steps[bool]:
        """Read a member's value; return False if it shows that the object is no call."""
        if key == "name":
            if call.name is not None:
                raise Malformed
            call.name = yield from read_string(self._reader)
            if call.name not in self._tools:
                return False
            if call.early:
                self._begin(call.name)
                self._report("".join(call.early))
        elif key in _ARGUMENTS:
            if call.has_arguments:
                raise Malformed
            call.has_arguments = True
            yield from self._read_argument_member(call)
        elif self._strict and key not in _OTHERS:
            if self._emitter.is_open:
                raise Malformed
            return False
        else:
            yield from read_value(self._reader, lambda _text: None)
        return True

    def _read_argument_member(self, call: _Call) -> Steps[None]:
        """Read the arguments: an object, a string that contains one, or null."""
        reader = self._reader
        first = yield from reader.peek()
        if first == "{":
            yield from read_value(
                reader, lambda text: self._report_or_hold(call, text), only_object=True
            )
        elif first == '"':
            reader.position += 1
            yield from self._read_wrapped(call)
        else:
            yield from reader.expect("null")

    def _read_wrapped(self, call: _Call) -> Steps[None]:
        """Read the inside of a string and report the object that it contains."""
        reader, scanner = self._reader, JsonScanner(only_object=True)
        is_blank = True
        while (unit := (yield from peek_unit(reader))) is not None:
            meaning, size = unit
            start = after_blanks(meaning, 0) if is_blank else 0
            is_blank = start == len(meaning)
            end, text = scanner.feed(meaning, start)
            is_read = end == len(meaning)
            # A run of plain characters may be read in part; an escape, one character, may not.
            reader.position += size if is_read else end
            self._report_or_hold(call, text)
            if is_read:
                continue
            if scanner.state is not Scan.DONE or after_blanks(meaning, end) < len(meaning):
                raise Malformed
            reader.position += size - end
        if scanner.state is not Scan.DONE and not is_blank:
            raise Malformed
        reader.position += 1

    def _report_or_hold(self, call: _Call, arguments: str) -> None:
        """Report arguments, or hold them until the name is known."""
        if not arguments:
            return
        if call.name is None:
            call.early.append(arguments)
            return
        if not self._emitter.is_open:
            self._begin(call.name)
        self._report(arguments)
