"""OutputText: from the sampled tokens of one sequence to text and log-probabilities to send."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from core.contract.messages import TokenLogprob
from core.contract.params import Thinking
from core.text.detokenizer import Detokenizer
from core.text.stop import StopMatcher
from core.text.thinking import ThinkingGate


class OutputText:
    """Detokenizes, looks for stop strings, and keeps log-probabilities in step with the text.

    Sans-IO and owned by one sequence: ``feed`` each sampled token, or ``feed_end`` the one that
    ends it; ``finish`` when the sequence is over for whatever reason; ``take`` whenever
    something is to be sent. Each costs time linear in the text that goes through it.

    The entry of a token is released with the last character of its text, the entry of a token
    without text (half a character, a hidden one) with the next text, an end token's by
    ``finish``. When a stop string cuts the text, the entry of the token in which the text now
    ends is the last one.
    """

    __slots__ = (
        "_detokenizer",
        "_entries",
        "_gate",
        "_is_checked",
        "_is_finished",
        "_matcher",
        "_num_generated",
        "_num_released",
        "_released",
        "_released_entries",
    )

    def __init__(
        self,
        detokenizer: Detokenizer,
        *,
        stop: Sequence[str] = (),
        include_stop: bool = False,
        thinking: Thinking | None = None,
    ) -> None:
        """Stop strings are looked for only behind the ``thinking``."""
        self._detokenizer = detokenizer
        self._matcher = StopMatcher(stop, include_stop) if stop else None
        self._gate: ThinkingGate | None = None
        if stop and thinking is not None:
            self._gate = ThinkingGate(thinking.begin, thinking.end, is_open=thinking.is_open)
        self._is_checked = False
        self._is_finished = False
        self._num_generated = 0  # code points, the held ones included
        self._num_released = 0
        self._released: list[str] = []
        self._entries: deque[tuple[int, TokenLogprob]] = deque()  # end of its text, entry
        self._released_entries: list[TokenLogprob] = []

    @property
    def matched(self) -> str | None:
        """The stop string that was found; the sequence is over then."""
        return None if self._matcher is None else self._matcher.matched

    def feed(
        self, token_id: int, logprob: TokenLogprob | None = None, *, check_stops: bool = True
    ) -> None:
        """Add a sampled token. Nothing happens once a stop string was found.

        Stop strings are looked for only in text that was fed with ``check_stops``, which may
        turn from false to true but not back.
        """
        if self._is_finished:
            return
        text = self._detokenizer.feed(token_id)
        start = self._num_generated
        self._num_generated = end = start + len(text)
        if logprob is not None:
            self._entries.append((end, _at(logprob, start)))
        if self._gate is not None:
            thought, text = self._gate.feed(text)
            self._release(thought)
        if check_stops and self._matcher is not None:
            self._is_checked = True
            text = self._matcher.feed(text)
            if self._matcher.matched is not None:
                self._release(text)
                self._cut()
                return
        if text:
            self._release(text)

    def feed_end(self, logprob: TokenLogprob | None = None) -> None:
        """Add the token that ended the sequence: its entry is kept, its text is not shown."""
        if logprob is not None and not self._is_finished:
            self._entries.append((self._num_generated, _at(logprob, self._num_generated)))

    def finish(self) -> None:
        """Release all that is held back. Calling it again does nothing."""
        if self._is_finished:
            return
        tail = self._detokenizer.finish()
        if self._gate is not None:
            thought, tail = self._gate.feed(tail)
            self._release(thought)
            tail += self._gate.finish()
        if self._is_checked and self._matcher is not None:
            tail = self._matcher.feed(tail) + self._matcher.finish()
        self._release(tail)
        if self.matched is not None:
            self._cut()
        else:
            self._is_finished = True
            self._released_entries.extend(entry for _, entry in self._entries)
            self._entries.clear()

    def take(self) -> tuple[str, tuple[TokenLogprob, ...]]:
        """Return the text and the entries that were released since the last call."""
        text = "".join(self._released)
        self._released.clear()
        if not self._released_entries:
            return text, ()
        entries = tuple(self._released_entries)
        self._released_entries.clear()
        return text, entries

    def _release(self, text: str) -> None:
        self._released.append(text)
        self._num_released += len(text)
        while entries := self._entries:
            end, entry = entries[0]
            if end > self._num_released or entry.text_offset >= self._num_released:
                break
            self._released_entries.append(entry)
            entries.popleft()

    def _cut(self) -> None:
        """End at a stop string: the token in which the text ends is the last one reported."""
        self._is_finished = True
        self._released_entries.extend(
            entry for _, entry in self._entries if entry.text_offset < self._num_released
        )
        self._entries.clear()


def _at(logprob: TokenLogprob, offset: int) -> TokenLogprob:
    return TokenLogprob(logprob.token_id, logprob.logprob, logprob.top, offset)
