"""Qwen 3 Coder: a call as XML, its values as plain text."""

from __future__ import annotations

import json
import re

from core.contract.grammar import CallMarkup
from server.parsers.text.reader import EndOfText, Malformed, Steps
from server.parsers.tool.parser import CallParser
from server.parsers.tool.schema_types import to_json, types_of

_CALL, _CALL_END = "<tool_call>", "</tool_call>"
_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
_KEY = re.compile(r"[^<>\n]*")
_STRING = frozenset({"string"})


class Qwen3CoderParser(CallParser):
    r"""``<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>``.

    One line break after a parameter's tag and one before its end are markup. Values that are
    strings by the tool's schema are reported as they come, others when they are complete. The
    outer tags may be missing.
    """

    name = "qwen3_coder"
    signs = ((_CALL, _PARAMETER),)
    openings = (_CALL, _FUNCTION)
    markers = (_CALL, _CALL_END)
    markup = CallMarkup(
        trigger=_CALL,
        before=_CALL + "\n" + _FUNCTION + "{name}>\n",
        after=_FUNCTION_END + "\n" + _CALL_END,
        between="\n",
        arguments="xml",
        xml_before=_PARAMETER + "{name}>\n",
        xml_after="\n" + _PARAMETER_END + "\n",
    )

    def _read_calls(self) -> Steps[None]:
        reader = self._reader
        if (yield from reader.accept(_CALL)):
            yield from reader.blanks()
        yield from reader.expect(_FUNCTION)
        name = yield from reader.word()
        yield from reader.expect(">")
        if name not in self._tools:
            yield from reader.until(self._report_content, _FUNCTION_END, _CALL_END)
            return
        yield from reader.blanks()
        keys: set[str] = set()
        while (yield from reader.accept(_PARAMETER)):
            key = yield from reader.word(_KEY)
            yield from reader.expect(">")
            if key in keys:
                raise Malformed
            if not keys:
                self._begin(name)
            yield from self._read_parameter(f"{',' if keys else '{'}{_quoted(key)}:", name, key)
            keys.add(key)
            yield from reader.blanks()
        if not (yield from reader.accept(_FUNCTION_END)):
            yield from reader.expect(_CALL_END)
        if not keys:
            self._begin(name)
        self._report("}" if keys else "{}")
        yield from self._end(_CALL_END)

    def _read_parameter(self, label: str, name: str, key: str) -> Steps[None]:
        """Read a value and its end tag, and report the value after its label."""
        reader, types = self._reader, types_of(self._tools[name].parameters, key)
        if types == _STRING:
            self._report(label + '"')
            yield from self._read_string()
            yield from reader.expect(_PARAMETER_END)
            self._report('"')
            return
        pieces: list[str] = []
        try:
            yield from reader.until(pieces.append, _PARAMETER_END)
        except EndOfText:
            self._report(label + "".join(pieces))
            raise
        yield from reader.expect(_PARAMETER_END)
        value = "".join(pieces).removeprefix("\n").removesuffix("\n")
        self._report(label + to_json(value, types))

    def _read_string(self) -> Steps[None]:
        """Read a string and report it as it comes; hold a line break until more text follows."""
        held = ""

        def report(piece: str) -> None:
            nonlocal held
            piece = held + piece
            text = piece.removesuffix("\n")
            held = piece[len(text) :]
            self._report(_quoted(text)[1:-1])

        yield from self._reader.accept("\n")
        yield from self._reader.until(report, _PARAMETER_END)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
