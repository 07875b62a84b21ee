"""Qwen 3 Coder: a call as XML, its values as plain text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from core.contract.grammar import CallMarkup
from server.parsers.reader import EndOfText, Malformed, Steps
from server.parsers.schema_types import to_json, types_of
from server.parsers.tool.parser import CallParser

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
            yield from self._read_function_as_content()
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
        parameters: Mapping[str, Any] | None = self._tools[name].parameters
        types = types_of(parameters, key)
        if types == _STRING:
            self._report(label + '"')
            yield from self._read_string()
            self._report('"')
            return
        pieces: list[str] = []
        try:
            yield from self._read_value(pieces)
        except EndOfText:
            self._report(label + "".join(pieces))
            raise
        value = "".join(pieces).removeprefix("\n").removesuffix("\n")
        self._report(label + to_json(value, types))

    def _read_string(self) -> Steps[None]:
        """Read a string and report it as it comes; hold a line break until more text follows."""
        reader = self._reader
        yield from reader.accept("\n")
        held = ""
        while True:
            piece, end = yield from reader.until(_PARAMETER_END)
            piece = held + piece
            text = piece.removesuffix("\n")
            held = piece[len(text) :]
            self._report(_quoted(text)[1:-1])
            if end is not None:
                yield from reader.expect(end)
                return

    def _read_value(self, pieces: list[str]) -> Steps[None]:
        """Read a value, appending to ``pieces``, and its end tag."""
        while True:
            piece, end = yield from self._reader.until(_PARAMETER_END)
            pieces.append(piece)
            if end is not None:
                yield from self._reader.expect(end)
                return

    def _read_function_as_content(self) -> Steps[None]:
        """Read on to the end of a function that is not offered."""
        reader = self._reader
        while True:
            _, end = yield from reader.until(_FUNCTION_END, _CALL_END)
            self._emitter.content(reader.take())
            if end is not None:
                return


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
