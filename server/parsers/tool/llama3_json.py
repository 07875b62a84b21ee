"""Llama 3.1 and later: bare JSON objects."""

from core.contract.grammar import CallMarkup
from server.parsers.reader import Steps
from server.parsers.tool.json_call import JsonCallParser

_TAGS, _END = ("<|python_tag|>", "<|python_start|>"), "<|python_end|>"
_BETWEEN = ";"


class Llama3JsonParser(JsonCallParser):
    """``{"name": "f", "parameters": {…}}``, perhaps after ``<|python_tag|>``; ``;`` between calls.

    Any object in the text may be a call; it is one if it has nothing but a call's members and
    names an offered function.
    """

    name = "llama3_json"
    openings = (*_TAGS, "{")
    markers = (*_TAGS, _END)
    markup = CallMarkup(
        trigger='{"name": "',
        before='{"name": "{name}", "parameters": ',
        after="}",
        between=_BETWEEN + " ",
        only_at_start=True,
    )
    _strict = True

    @classmethod
    def is_used_by(cls, chat_template: str) -> bool:
        return '"name": function name, "parameters"' in chat_template or (
            "<|python_tag|>" in chat_template and '"parameters"' in chat_template
        )

    def _read_calls(self) -> Steps[None]:
        for tag in _TAGS:
            yield from self._reader.accept(tag)
        yield from self._reader.blanks()
        yield from self._read_call()
        if self._emitter.is_open:
            yield from self._end(_BETWEEN, _END)
