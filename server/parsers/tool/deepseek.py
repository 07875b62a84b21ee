"""DeepSeek V3, R1 and V3.1: JSON between tags of full-width bars."""

from core.contract.grammar import CallMarkup
from server.parsers.text.reader import Steps
from server.parsers.tool.parser import CallParser

_CALLS, _CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"  # noqa: RUF001 - their bars
_CALL, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"  # noqa: RUF001
_SEPARATOR = "<｜tool▁sep｜>"  # noqa: RUF001
_FENCE, _FENCE_END = "```json", "```"


class DeepseekParser(CallParser):
    """A list of calls, each in its own tags.

    V3 and R1 write the kind of call, the separator, the function's name and the arguments in a
    fenced block marked ``json``; V3.1 writes the name, the separator and the arguments.
    """

    name = "deepseek"
    signs = ((_CALLS,),)
    openings = (_CALLS, _CALL)
    markers = (_CALLS, _CALLS_END, _CALL, _CALL_END, _SEPARATOR)
    markup = CallMarkup(
        trigger=_CALLS,
        opening=_CALLS,
        before=_CALL + "{name}" + _SEPARATOR,
        after=_CALL_END,
        closing=_CALLS_END,
    )
    other_markup = (
        _FENCE,
        CallMarkup(
            trigger=_CALLS,
            opening=_CALLS,
            before=f"{_CALL}function{_SEPARATOR}{{name}}\n{_FENCE}\n",
            after=f"\n{_FENCE_END}{_CALL_END}",
            between="\n",
            closing=_CALLS_END,
        ),
    )

    def _read_calls(self) -> Steps[None]:
        reader = self._reader
        if (yield from reader.accept(_CALLS)):
            yield from reader.blanks()
        yield from reader.expect(_CALL)
        name = yield from reader.word()
        yield from reader.blanks()
        yield from reader.expect(_SEPARATOR)
        yield from reader.blanks()
        is_fenced = (yield from reader.peek()) != "{"
        if is_fenced:
            name = yield from reader.word()
            yield from reader.blanks()
            yield from reader.expect(_FENCE)
            yield from reader.blanks()
        yield from self._read_arguments(name)
        if self._is_open:
            yield from self._end(*([_FENCE_END] if is_fenced else []), _CALL_END, _CALLS_END)
