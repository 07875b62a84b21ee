"""CallParser: the base of all tool-call formats.

The rules are the same for every family:

- Text outside of calls is content. Whitespace next to a call is not (see Emitter). The longest
  tail that may begin a call is held back, so that markup is never shown in part.
- A call is reported once its name is known to be that of an offered function and its arguments
  begin; from there on, arguments are reported as far as they are certainly well-formed.
- Text that is malformed before that point, and a call of a function that was not offered, is
  content, verbatim. Text that is malformed later ends the arguments where they are; the rest of
  the text is content, as is text after a call.
- Text that ends within a reported call leaves the call as far as it came; within an unreported
  one, the fragment is content. Closing tags may be missing or cut.
"""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import ClassVar

from core.contract.grammar import CallMarkup
from schemas.tools import FunctionDefinition
from server.parsers.base import Delta, new_call_id
from server.parsers.emitter import Emitter
from server.parsers.reader import EndOfText, Malformed, Reader, Steps, read_value
from server.parsers.tails import held_from


class CallParser(ABC):
    """Parses the text of one choice. A subclass holds all that is known of one family's format.

    See Parser. ``tools`` are the functions that may be called. With ``parallel`` false only the
    first call is reported, the others are dropped.
    """

    name: ClassVar[str]
    """Name of the family, as in ``--tool-call-parser``."""
    markup: ClassVar[CallMarkup]
    """How the family writes calls; ``markup_for`` if it has several forms."""
    openings: ClassVar[tuple[str, ...]]
    """What a call may begin with."""
    markers: ClassVar[tuple[str, ...]]
    """Markup that tokenizers hold as special tokens: the parser's text must include them."""
    _opening: ClassVar[re.Pattern[str]]

    def __init_subclass__(cls) -> None:
        if hasattr(cls, "openings"):
            cls._opening = re.compile("|".join(map(re.escape, cls.openings)))

    def __init__(
        self,
        tools: Sequence[FunctionDefinition],
        *,
        parallel: bool = True,
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._reader = Reader()
        self._emitter = Emitter(parallel=parallel, new_id=new_id)
        self._steps = self._run()
        next(self._steps)

    @classmethod
    @abstractmethod
    def is_used_by(cls, chat_template: str) -> bool:
        """Whether the chat template shows that its model writes calls in this format."""

    @classmethod
    def markup_for(cls, chat_template: str) -> CallMarkup:
        """Return the form of the markup that this chat template uses."""
        del chat_template
        return cls.markup

    def feed(self, text: str) -> list[Delta]:
        """See Parser."""
        self._reader.push(text)
        next(self._steps)
        return self._emitter.take()

    def finish(self) -> list[Delta]:
        """See Parser."""
        self._reader.end()
        next(self._steps, None)
        return self._emitter.finish()

    @abstractmethod
    def _read_calls(self) -> Steps[None]:
        """Read one call or more, from an opening on.

        Raises Malformed, but not before the opening is read: the rest is searched again.
        """

    def _run(self) -> Generator[None, None, None]:
        reader, emitter = self._reader, self._emitter
        try:
            while True:
                yield from self._read_content()
                try:
                    yield from self._read_calls()
                except Malformed:
                    emitter.content(reader.take())
                if emitter.is_open:
                    emitter.end()
                    reader.commit()
        except EndOfText:
            reader.position = len(reader.text)
            if not emitter.is_open:
                emitter.content(reader.take())

    def _read_content(self) -> Steps[None]:
        """Report text as content, up to an opening."""
        reader = self._reader
        while True:
            text = reader.text
            match = self._opening.search(text, reader.position)
            reader.position = (
                match.start() if match else held_from(text, self.openings, reader.position)
            )
            if reader.position > reader.mark:
                self._emitter.content(reader.take())
            if match:
                return
            yield from reader.wait()

    # What subclasses read with.

    def _begin(self, name: str) -> None:
        """Report that a call begins."""
        self._emitter.begin(name)
        self._reader.commit()

    def _report(self, arguments: str) -> None:
        """Report arguments, up to the reader's position."""
        self._emitter.arguments(arguments)
        self._reader.commit()

    def _end(self, *tags: str) -> Steps[None]:
        """End the call and read each closing tag that comes next, with whitespace around them.

        At the end of the text part of a tag is read as well.
        """
        reader = self._reader
        self._emitter.end()
        reader.commit()
        try:
            for tag in tags:
                yield from reader.blanks()
                if (yield from reader.accept(tag)):
                    reader.commit()
        except EndOfText:
            reader.position = len(reader.text)
            reader.commit()
            raise

    def _read_list(self, read_call: Callable[[], Steps[None]]) -> Steps[bool]:
        """Read calls in brackets, with commas between; return whether the last was reported.

        Brackets and commas next to a call that was not reported are content, like the call.
        """
        reader, emitter = self._reader, self._emitter
        yield from reader.expect("[")
        while True:
            yield from reader.blanks()
            yield from read_call()
            is_call = emitter.is_open
            emitter.end()
            reader.commit()
            yield from reader.blanks()
            is_last = yield from reader.accept("]")
            if not is_last:
                yield from reader.expect(",")
            if is_call:
                reader.commit()
            else:
                emitter.content(reader.take())
            if is_last:
                return is_call

    def _read_arguments(self, name: str) -> Steps[None]:
        """Read and report a call of this name whose arguments, a JSON object, come next."""
        if name not in self._tools:
            yield from self._read_value_as_content()
            return
        reader = self._reader
        yield from reader.blanks()
        if (yield from reader.peek()) != "{":
            raise Malformed
        self._begin(name)
        yield from read_value(reader, self._report, only_object=True)

    def _read_value_as_content(self) -> Steps[None]:
        """Read a JSON value that is no call after all, up to where it is malformed."""
        with contextlib.suppress(Malformed):
            yield from read_value(
                self._reader, lambda _text: self._emitter.content(self._reader.take())
            )
