"""Pythonic calls (Llama 3.2 and 4, ToolACE): a list of Python calls with literal arguments."""

import json

from core.contract.grammar import CallMarkup
from server.parsers.text.python_literal import literal
from server.parsers.text.reader import Malformed, Steps
from server.parsers.tool.parser import CallParser

_TAGS, _END = ("<|python_start|>", "<|python_tag|>"), "<|python_end|>"


class PythonicParser(CallParser):
    """``[f(a=1, b="x"), g()]``, perhaps between ``<|python_start|>`` and ``<|python_end|>``.

    Arguments are reported value by value, as compact JSON. A bracket anywhere in the text opens
    the list if the name of an offered function and a parenthesis follow it.
    """

    name = "pythonic"
    signs = (("func_name1(",),)
    openings = (*_TAGS, "[")
    markers = (*_TAGS, _END)
    markup = CallMarkup(
        trigger="[",
        opening="[",
        before="{name}(",
        after=")",
        between=", ",
        closing="]",
        only_at_start=True,
        arguments="keywords",
    )

    def _read_calls(self) -> Steps[None]:
        reader = self._reader
        for tag in _TAGS:
            yield from reader.accept(tag)
        yield from reader.blanks()
        if (yield from self._read_list(self._read_call)):
            yield from self._end(_END)

    def _read_call(self) -> Steps[None]:
        reader = self._reader
        name = yield from reader.word()
        is_offered = name in self._tools
        keys: set[str] = set()

        def argument() -> Steps[None]:
            key = yield from reader.word()
            yield from reader.blanks()
            yield from reader.expect("=")
            yield from reader.blanks()
            value = yield from literal(reader)
            if key in keys:
                raise Malformed
            if is_offered:
                if not keys:
                    self._begin(name)
                self._report(f"{',' if keys else '{'}{json.dumps(key, ensure_ascii=False)}:{value}")
            keys.add(key)

        yield from reader.blanks()
        yield from reader.expect("(")
        yield from reader.items(")", argument)
        if is_offered:
            if not keys:
                self._begin(name)
            self._report("}" if keys else "{}")
        else:
            self._report_content()
