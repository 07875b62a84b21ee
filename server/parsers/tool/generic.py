"""The generic form, for models whose chat template shows no tools: JSON between tags, or bare."""

from core.contract.grammar import CallMarkup
from server.parsers.reader import Steps
from server.parsers.tool.json_call import JsonCallParser

_BEGIN, _END = "<tool_call>", "</tool_call>"


class GenericParser(JsonCallParser):
    r"""``<tool_call>\n{"name": "f", "arguments": {…}}\n</tool_call>``, one pair of tags a call.

    ``server.translation.messages`` asks for it in the prompt. A model that was not trained on
    it may forget the tags: any object in the text may be a call; it is one if it has nothing but a
    call's members and names an offered function.
    """

    name = "generic"
    openings = (_BEGIN, "{")
    markers = (_BEGIN, _END)
    markup = CallMarkup(
        trigger=_BEGIN,
        before=_BEGIN + '\n{"name": "{name}", "arguments": ',
        after="}\n" + _END,
        between="\n",
    )
    _strict = True

    @classmethod
    def is_used_by(cls, chat_template: str) -> bool:
        del chat_template
        return False  # it is no template's own form

    def _read_calls(self) -> Steps[None]:
        if (yield from self._reader.accept(_BEGIN)):
            yield from self._reader.blanks()
        yield from self._read_call()
        if self._emitter.is_open:
            yield from self._end(_END)
