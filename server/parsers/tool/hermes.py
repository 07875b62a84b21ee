"""Hermes, Qwen 2.5, Qwen 3 and the built-in model: a JSON object between ``<tool_call>`` tags."""

from core.contract.grammar import CallMarkup
from server.parsers.reader import Steps
from server.parsers.tool.json_call import JsonCallParser

_BEGIN, _END = "<tool_call>", "</tool_call>"


class HermesParser(JsonCallParser):
    r"""``<tool_call>\n{"name": "f", "arguments": {…}}\n</tool_call>``, one pair of tags a call."""

    name = "hermes"
    openings = (_BEGIN,)
    markers = (_BEGIN, _END)
    markup = CallMarkup(
        trigger=_BEGIN,
        before=_BEGIN + '\n{"name": "{name}", "arguments": ',
        after="}\n" + _END,
        between="\n",
    )

    @classmethod
    def is_used_by(cls, chat_template: str) -> bool:
        return (
            _BEGIN in chat_template
            and "<parameter=" not in chat_template  # Qwen 3 Coder
            and "<arg_key>" not in chat_template  # GLM
        )

    def _read_calls(self) -> Steps[None]:
        yield from self._reader.expect(_BEGIN)
        yield from self._reader.blanks()
        yield from self._read_call()
        if self._emitter.is_open:
            yield from self._end(_END)
