"""JsonCallParser: base of the families that write a call as ``{"name": …, "arguments": {…}}``.

HermesParser, GenericParser, Llama3JsonParser: the families that differ in their tags only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from core.contract.grammar import CallMarkup
from server.parsers.text.json_scan import JsonScanner, Scan
from server.parsers.text.reader import Malformed, Steps, after_blanks, unit_meaning
from server.parsers.tool.parser import CallParser

_ARGUMENTS = ("arguments", "parameters")
_OTHERS = frozenset({"type", "id"})
_CALL, _CALL_END = "<tool_call>", "</tool_call>"
_PYTHON_TAGS, _PYTHON_END = ("<|python_tag|>", "<|python_start|>"), "<|python_end|>"


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
    Other members are dropped.
    """

    begin_tags: ClassVar[tuple[str, ...]] = ()
    """What may come before a call, in this order."""
    end_tags: ClassVar[tuple[str, ...]] = ()
    """What may come after a call, in this order."""
    is_bare: ClassVar[bool] = False
    """Any object in the text may be a call. It is one if it names an offered function and has no
    members but name, arguments, ``type`` and ``id``; else it is content to its end."""

    def _read_calls(self) -> Steps[None]:
        for tag in self.begin_tags:
            yield from self._reader.accept(tag)
        yield from self._reader.blanks()
        yield from self._read_call()
        if self._is_open:
            yield from self._end(*self.end_tags)

    def _read_call(self) -> Steps[None]:
        """Read one call object, which begins at the reader's position, and report it."""
        reader, call = self._reader, _Call()
        offset = reader.position - reader.mark  # the mark stays until the call is reported
        yield from reader.expect("{")
        is_last = False
        while not is_last:
            yield from reader.blanks()
            key = yield from reader.string()
            yield from reader.blanks()
            yield from reader.expect(":")
            yield from reader.blanks()
            if not (yield from self._read_member(call, key)):
                reader.position = reader.mark + offset
                yield from self._read_value_as_content()
                return
            yield from reader.blanks()
            is_last = yield from reader.accept("}")
            if not is_last:
                yield from reader.expect(",")
        if call.name is None:
            raise Malformed
        if not self._is_open:
            self._begin(call.name)
            self._report("{}")

    def _read_member(self, call: _Call, key: str) -> Steps[bool]:
        """Read a member's value; return False if it shows that the object is no call."""
        if key == "name":
            if call.name is not None:
                raise Malformed
            call.name = yield from self._reader.string()
            if call.name not in self._tools:
                return False
            self._report_or_hold(call, "".join(call.early))
        elif key in _ARGUMENTS:
            if call.has_arguments:
                raise Malformed
            call.has_arguments = True
            yield from self._read_argument_member(call)
        elif self.is_bare and key not in _OTHERS:
            if self._is_open:
                raise Malformed
            return False
        else:
            yield from self._reader.value(lambda _text: None)
        return True

    def _read_argument_member(self, call: _Call) -> Steps[None]:
        """Read the arguments: an object, a string that contains one, or null."""
        reader = self._reader
        if (yield from reader.accept('"')):
            yield from self._read_wrapped(call)
        elif (yield from reader.peek()) == "{":
            yield from reader.value(lambda text: self._report_or_hold(call, text))
        else:
            yield from reader.expect("null")

    def _read_wrapped(self, call: _Call) -> Steps[None]:
        """Read the inside of a string and report the object that it contains."""
        reader, scanner = self._reader, JsonScanner(only_object=True)
        is_blank = True
        while unit := (yield from reader.peek_unit()):
            meaning = unit_meaning(unit)
            start = after_blanks(meaning, 0) if is_blank else 0
            is_blank = start == len(meaning)
            end, text = scanner.feed(meaning, start)
            is_read = end == len(meaning)
            # A run of plain characters may be read in part; an escape, one character, may not.
            reader.position += len(unit) if is_read else end
            self._report_or_hold(call, text)
            if is_read:
                continue
            if scanner.state is not Scan.DONE or after_blanks(meaning, end) < len(meaning):
                raise Malformed
            reader.position += len(unit) - end
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
        if not self._is_open:
            self._begin(call.name)
        self._report(arguments)


class HermesParser(JsonCallParser):
    r"""``<tool_call>\n{"name": "f", "arguments": {…}}\n</tool_call>``, one pair of tags a call.

    Hermes, Qwen 2.5, Qwen 3 and the built-in model write it.
    """

    name = "hermes"
    signs: ClassVar[tuple[tuple[str, ...], ...]] = ((_CALL,),)
    foreign = ("<parameter=", "<arg_key>")  # Qwen 3 Coder, GLM
    begin_tags = (_CALL,)
    end_tags = (_CALL_END,)
    openings: ClassVar[tuple[str, ...]] = (_CALL,)
    markers = (_CALL, _CALL_END)
    markup = CallMarkup(
        trigger=_CALL,
        before=_CALL + '\n{"name": "{name}", "arguments": ',
        after="}\n" + _CALL_END,
        between="\n",
    )


class GenericParser(HermesParser):
    """For models whose chat template shows no tools: the same, or bare.

    ``server.translation.messages`` asks for it in the prompt. A model that was not trained on it
    may forget the tags.
    """

    name = "generic"
    signs = ()  # it is no template's own form
    openings = (_CALL, "{")
    is_bare = True


class Llama3JsonParser(JsonCallParser):
    """``{"name": "f", "parameters": {…}}``, perhaps after ``<|python_tag|>``; ``;`` separates.

    Llama 3.1 and later write it.
    """

    name = "llama3_json"
    signs = (('"name": function name, "parameters"',), ("<|python_tag|>", '"parameters"'))
    begin_tags = _PYTHON_TAGS
    end_tags = (";", _PYTHON_END)
    is_bare = True
    openings = (*_PYTHON_TAGS, "{")
    markers = (*_PYTHON_TAGS, _PYTHON_END)
    markup = CallMarkup(
        trigger='{"name": "',
        before='{"name": "{name}", "parameters": ',
        after="}",
        between="; ",
        only_at_start=True,
    )
