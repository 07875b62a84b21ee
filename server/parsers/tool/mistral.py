"""Mistral: ``[TOOL_CALLS]`` and then a JSON array, or in newer models a name and JSON."""

from core.contract.grammar import CallMarkup
from server.parsers.text.reader import Steps
from server.parsers.tool.json_call import JsonCallParser

_CALLS, _CALL_ID, _ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"


class MistralParser(JsonCallParser):
    """``[TOOL_CALLS][{"name": "f", "arguments": {…}}, …]`` or ``[TOOL_CALLS]f[ARGS]{…}``.

    The newer form has one marker a call, and may have ``[CALL_ID]…`` after the name; that id is
    dropped.
    """

    name = "mistral"
    signs = ((_CALLS,),)
    openings = (_CALLS,)
    markers = (_CALLS, _CALL_ID, _ARGS)
    markup = CallMarkup(
        trigger=_CALLS,
        opening=_CALLS + "[",
        before='{"name": "{name}", "arguments": ',
        after="}",
        between=", ",
        closing="]",
    )
    other_markup = (_ARGS, CallMarkup(trigger=_CALLS, before=_CALLS + "{name}" + _ARGS, after=""))

    def _read_calls(self) -> Steps[None]:
        reader = self._reader
        yield from reader.expect(_CALLS)
        yield from reader.blanks()
        first = yield from reader.peek()
        if first == "[":
            yield from self._read_list(self._read_call)
        elif first == "{":
            yield from self._read_call()
        else:
            yield from self._read_named()

    def _read_named(self) -> Steps[None]:
        reader = self._reader
        name = yield from reader.word()
        yield from reader.blanks()
        if (yield from reader.accept(_CALL_ID)):
            yield from reader.word()
        if (yield from reader.accept(_ARGS)):
            yield from reader.blanks()
        yield from self._read_arguments(name)
