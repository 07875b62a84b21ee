"""CallParser: the base of all tool-call formats.

The rules are the same for every family:

- Text outside of calls is content. Whitespace at its end is held until more content comes, and
  dropped if none does and there were calls; so is whitespace before the first content that follows
  a call. The longest tail that may begin a call is held back, so that markup is never shown in
  part.
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
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from itertools import groupby
from typing import ClassVar

import msgspec

from core.contract.grammar import CallMarkup
from schemas.tools import FunctionDefinition
from server.parsers.base import CallArguments, CallBegin, Content, Delta, new_call_id
from server.parsers.text.reader import EndOfText, Malformed, Reader, Steps

_BLANKS = " \t\r\n"


class CallParser(ABC):
    """Parses the text of one choice, which comes in pieces of any size.

    However the same text is cut, its concatenated deltas are the same. A parser cannot be used
    again after ``finish``. A subclass holds all that is known of one family's format. ``tools``
    are the functions that may be called. With ``parallel`` false only the first call is reported,
    the others are dropped.
    """

    name: ClassVar[str]  # name of the family, as in ``--tool-call-parser``
    signs: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """What chat templates of the family contain: all texts of one of these."""
    foreign: ClassVar[tuple[str, ...]] = ()
    """What chat templates contain that have the signs, but are of another family."""
    markup: ClassVar[CallMarkup]  # how the family writes calls
    other_markup: ClassVar[tuple[str, CallMarkup] | None] = None
    """How it writes calls if the chat template contains this text."""
    openings: ClassVar[tuple[str, ...]]  # what a call may begin with
    markers: ClassVar[tuple[str, ...]]
    """Markup that tokenizers hold as special tokens: the parser's text must include them."""

    def __init__(
        self,
        tools: Sequence[FunctionDefinition],
        *,
        parallel: bool = True,
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._reader = Reader()
        self._parallel = parallel
        self._new_id = new_id
        self._num_calls = 0
        self._deltas: list[Delta] = []
        self._held = ""
        self._has_content = False
        self._is_open = False  # whether a call has begun and not ended
        self._steps = self._run()
        next(self._steps)

    @classmethod
    def is_used_by(cls, chat_template: str) -> bool:
        """Whether the chat template shows that its model writes calls in this format."""
        return any(all(text in chat_template for text in texts) for texts in cls.signs) and not any(
            text in chat_template for text in cls.foreign
        )

    @classmethod
    def markup_for(cls, chat_template: str) -> CallMarkup:
        """Return the form of the markup that this chat template uses."""
        if cls.other_markup and cls.other_markup[0] in chat_template:
            return cls.other_markup[1]
        return cls.markup

    def feed(self, text: str) -> list[Delta]:
        """Return the deltas that are certain now."""
        self._reader.push(text)
        next(self._steps)
        return self._take()

    def finish(self) -> list[Delta]:
        """Return the deltas of the text that was held back. No more text comes."""
        self._reader.end()
        next(self._steps, None)
        if self._held and not self._num_calls:
            self._deltas.append(Content(self._held))
        return self._take()

    def _take(self) -> list[Delta]:
        """Return the deltas since the last call; neighbours that add to the same text are one."""
        taken: list[Delta] = []
        for _, group in groupby(self._deltas, type):
            deltas = list(group)
            texts = [delta.text for delta in deltas if not isinstance(delta, CallBegin)]
            taken += [msgspec.structs.replace(deltas[0], text="".join(texts))] if texts else deltas
        self._deltas = []
        return taken

    @abstractmethod
    def _read_calls(self) -> Steps[None]:
        """Read one call or more, from an opening on.

        Raises Malformed, but not before the opening is read: the rest is searched again.
        """

    def _run(self) -> Generator[None, None, None]:
        reader = self._reader
        try:
            while True:
                yield from reader.until(self._report_content, *self.openings)
                try:
                    yield from self._read_calls()
                except Malformed:
                    self._report_content()
                if self._is_open:
                    self._close()
        except EndOfText:
            reader.position = len(reader.text)
            if not self._is_open:
                self._report_content()

    # What subclasses read with.

    def _report_content(self, _read: str = "") -> None:
        """Report the text that was read and is not committed as content."""
        text = self._reader.take()
        body = text.rstrip(_BLANKS)
        if not body:
            self._held += text
            return
        whole = self._held + body
        if self._num_calls and not self._has_content:
            whole = whole.lstrip(_BLANKS)
        self._held = text[len(body) :]
        self._has_content = True
        self._deltas.append(Content(whole))

    def _begin(self, name: str) -> None:
        """Report that a call begins."""
        assert not self._is_open
        self._is_open = True
        self._num_calls += 1
        if self._parallel or self._num_calls == 1:
            self._deltas.append(CallBegin(self._num_calls - 1, self._new_id(), name))
        self._reader.commit()

    def _report(self, arguments: str) -> None:
        """Report arguments of the open call, up to the reader's position."""
        assert self._is_open
        if arguments and (self._parallel or self._num_calls == 1):
            self._deltas.append(CallArguments(self._num_calls - 1, arguments))
        self._reader.commit()

    def _close(self) -> None:
        """End the open call, if there is one. What was read so far is committed."""
        self._is_open = False
        self._reader.commit()

    def _end(self, *tags: str) -> Steps[None]:
        """End the call and read each closing tag that comes next, with whitespace around them.

        At the end of the text part of a tag is read as well.
        """
        reader = self._reader
        self._close()
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
        reader = self._reader
        yield from reader.expect("[")
        while True:
            yield from reader.blanks()
            yield from read_call()
            is_call = self._is_open
            self._close()
            yield from reader.blanks()
            is_last = yield from reader.accept("]")
            if not is_last:
                yield from reader.expect(",")
            if is_call:
                reader.commit()
            else:
                self._report_content()
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
        yield from reader.value(self._report, only_object=True)

    def _read_value_as_content(self) -> Steps[None]:
        """Read a JSON value that is no call after all, up to where it is malformed."""
        with contextlib.suppress(Malformed):
            yield from self._reader.value(self._report_content)
