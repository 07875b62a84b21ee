"""Emitter: content and calls to deltas, without the whitespace around calls."""

from __future__ import annotations

from collections.abc import Callable

from server.parsers.base import CallArguments, CallBegin, Content, Delta

_BLANKS = " \t\r\n"


class Emitter:
    """Collects the deltas of one choice and numbers its calls.

    Whitespace at the end of the content is held until more content comes, and dropped if none
    does and there were calls; so is whitespace before the first content that follows a call.
    Without ``parallel`` every call after the first is dropped.
    """

    __slots__ = (
        "_deltas",
        "_has_content",
        "_held",
        "_holds_arguments",
        "_new_id",
        "_num_calls",
        "_parallel",
        "_pieces",
        "is_open",
    )

    def __init__(self, *, parallel: bool, new_id: Callable[[], str]) -> None:
        self._parallel = parallel
        self._new_id = new_id
        self._num_calls = 0
        self._deltas: list[Delta] = []
        self._pieces: list[str] = []  # of one text: arguments of the last call, or content
        self._holds_arguments = False
        self._held = ""
        self._has_content = False
        self.is_open = False
        """Whether a call has begun and not ended."""

    def content(self, text: str) -> None:
        """Add to the answer's text."""
        body = text.rstrip(_BLANKS)
        if not body:
            self._held += text
            return
        self._switch(to_arguments=False)
        whole = self._held + body
        if self._num_calls and not self._has_content:
            whole = whole.lstrip(_BLANKS)
        self._held = text[len(body) :]
        self._has_content = True
        self._pieces.append(whole)

    def begin(self, name: str) -> None:
        """Begin a call."""
        assert not self.is_open
        self._switch(to_arguments=False)
        self._flush()
        self.is_open = True
        self._num_calls += 1
        if self._is_reported:
            self._deltas.append(CallBegin(self._num_calls - 1, self._new_id(), name))

    def arguments(self, text: str) -> None:
        """Add to the arguments of the open call."""
        assert self.is_open
        self._switch(to_arguments=True)
        if text and self._is_reported:
            self._pieces.append(text)

    def end(self) -> None:
        """End the open call, if there is one."""
        self.is_open = False

    def take(self) -> list[Delta]:
        """Return the deltas since the last call; neighbours that add to the same text are one."""
        self._flush()
        deltas, self._deltas = self._deltas, []
        return deltas

    def finish(self) -> list[Delta]:
        """Return the last deltas."""
        if self._held and not self._num_calls:
            self._switch(to_arguments=False)
            self._pieces.append(self._held)
        return self.take()

    @property
    def _is_reported(self) -> bool:
        return self._parallel or self._num_calls == 1

    def _switch(self, *, to_arguments: bool) -> None:
        """Make sure that the collected pieces are of this kind."""
        if self._holds_arguments is not to_arguments:
            self._flush()
            self._holds_arguments = to_arguments

    def _flush(self) -> None:
        """Turn the pieces into one delta."""
        if self._pieces:
            text = "".join(self._pieces)
            self._pieces.clear()
            self._deltas.append(
                CallArguments(self._num_calls - 1, text) if self._holds_arguments else Content(text)
            )
