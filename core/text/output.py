"""OutputAssembler: from sampled tokens of one sequence to text and log-probabilities to send."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from core.contract.messages import SampledLogprob
from core.contract.params import Thinking
from core.text.detokenizer import Detokenizer
from core.text.stop import StopMatcher
from core.text.thinking import Split, ThinkingScanner

NO_STOPS: Mapping[int, str] = MappingProxyType({})


class OutputAssembler:
    """Detokenizes, finds thinking and stop strings, and keeps log-probabilities with the text.

    Sans-IO and owned by one sequence: ``feed`` each sampled token, or ``feed_end`` the one that
    ends it; ``finish`` when the sequence is over; ``take`` to get the output.
    The cost is linear in the text.

    The entry of a token is released with the last character of its text, the entry of a token
    without text (an unfinished character, a hidden token) with the next text, an end token's by
    ``finish``. When a stop string cuts the text, the entry of the token in which the text now
    ends is the last one.
    """

    __slots__ = (
        "_detokenizer",
        "_entries",
        "_is_checked",
        "_is_finished",
        "_is_separate",
        "_matcher",
        "_num_generated",
        "_num_released",
        "_released",
        "_released_entries",
        "_released_thinking",
        "_scanner",
        "_special_stops",
        "_splits",
        "_stops_everywhere",
        "_strips_line_breaks",
    )

    def __init__(
        self,
        detokenizer: Detokenizer,
        *,
        stop: Sequence[str] = (),
        include_stop: bool = False,
        thinking: Thinking | None = None,
        special_stops: Mapping[int, str] = NO_STOPS,
    ) -> None:
        """``special_stops`` are those of ``stop`` that are one special token, by its id."""
        self._detokenizer = detokenizer
        self._special_stops = special_stops
        self._matcher = StopMatcher(stop, include_stop) if stop else None
        self._scanner = None if thinking is None else ThinkingScanner(thinking)
        self._stops_everywhere = thinking is None or not thinking.is_expected
        self._is_separate = thinking is not None and thinking.is_separate
        self._splits = self._is_separate or bool(stop and not self._stops_everywhere)
        self._strips_line_breaks = False  # those between the thinking and the answer
        self._is_checked = False
        self._is_finished = False
        self._num_generated = 0  # code points, those held back included
        self._num_released = 0  # code points as generated, those removed included
        self._released: list[str] = []
        self._released_thinking: list[str] = []
        self._entries: deque[tuple[int, SampledLogprob]] = deque()  # end of its text, entry
        self._released_entries: list[SampledLogprob] = []

    @property
    def matched(self) -> str | None:
        """The stop string that was found; the sequence is over then."""
        return None if self._matcher is None else self._matcher.matched

    @property
    def has_text(self) -> bool:
        """Whether ``take`` would return text or thinking."""
        return bool(self._released or self._released_thinking)

    @property
    def num_thinking_tokens(self) -> int:
        """Tokens of thinking so far, its markers included."""
        return 0 if self._scanner is None else self._scanner.num_tokens

    @property
    def must_end_thinking(self) -> bool:
        """Whether the sequence is thinking and has used up its budget."""
        return self._scanner is not None and self._scanner.must_end

    def stops_at(self, token_id: int) -> bool:
        """Whether this token alone is a stop string, where stop strings apply now."""
        return token_id in self._special_stops and (
            self._stops_everywhere or self._scanner is None or self._scanner.is_over
        )

    def feed(
        self, token_id: int, logprob: SampledLogprob | None = None, *, check_stops: bool = True
    ) -> None:
        """Add a sampled token. Nothing happens after a stop string was found.

        Stop strings are looked for only in text that was fed with ``check_stops``, which may
        turn from false to true but not back.
        """
        if self._is_finished:
            return
        text = self._detokenizer.feed(token_id)
        if self._special_stops and check_stops and self.stops_at(token_id):
            stop = self._special_stops[token_id]
            if not text.endswith(stop):  # the detokenizer hides it
                text += self._detokenizer.finish() + stop
        start = self._num_generated
        self._num_generated = end = start + len(text)
        if logprob is not None:
            self._entries.append((end, _at(logprob, start)))
        if self._matcher is not None or self._scanner is not None:
            text = self._filter(text, check_stops=check_stops)
        if text:
            self._release(text)
        if self._matcher is not None and self._matcher.matched is not None:
            self._cut()

    def feed_end(self, logprob: SampledLogprob | None = None) -> None:
        """Add the token that ended the sequence: its entry is kept, its text is not shown."""
        if self._is_finished:
            return
        if self._scanner is not None and not self._scanner.is_over:
            self._scan("")
        if logprob is not None:
            self._entries.append((self._num_generated, _at(logprob, self._num_generated)))

    def finish(self) -> None:
        """Release all that is held back. Calling it again does nothing."""
        if self._is_finished:
            return
        text = self._detokenizer.finish()
        if self._stops_everywhere:
            text = self._finish_match(text)
        if self._scanner is not None and not self._scanner.is_over:
            text = self._scan(text, num_tokens=0) + self._finish_scan()
        if not self._stops_everywhere:
            text = self._finish_match(text)
        if text:
            self._release(text)
        if self.matched is not None:
            self._cut()
        else:
            self._is_finished = True
            self._released_entries.extend(entry for _, entry in self._entries)
            self._entries.clear()

    def take(self) -> tuple[str, str, tuple[SampledLogprob, ...]]:
        """Return the text, the thinking before it and the entries released since the last call."""
        text = "".join(self._released)
        self._released.clear()
        thinking = ""
        if self._released_thinking:
            thinking = "".join(self._released_thinking)
            self._released_thinking.clear()
        if not self._released_entries:
            return text, thinking, ()
        entries = tuple(self._released_entries)
        self._released_entries.clear()
        return text, thinking, entries

    def _filter(self, text: str, *, check_stops: bool) -> str:
        """Release the thinking in ``text`` and return the answer up to a stop string."""
        if check_stops and self._stops_everywhere:
            text = self._match(text)
        if self._scanner is not None and not self._scanner.is_over:
            text = self._scan(text)
            if self.matched is not None:
                text += self._finish_scan()
        if check_stops and not self._stops_everywhere:
            text = self._match(text)
        return text

    def _match(self, text: str) -> str:
        if self._matcher is None:
            return text
        self._is_checked = True
        return self._matcher.feed(text)

    def _finish_match(self, text: str) -> str:
        if self._matcher is None or not self._is_checked:
            return text
        return self._matcher.feed(text) + self._matcher.finish()

    def _scan(self, text: str, *, num_tokens: int = 1) -> str:
        """Release the thinking in ``text`` and return the answer."""
        assert self._scanner is not None
        split = self._scanner.feed(text, num_tokens=num_tokens)
        return self._release_thinking(split) if self._splits else text

    def _finish_scan(self) -> str:
        """Release the thinking held back and return the answer held back."""
        assert self._scanner is not None
        return self._release_thinking(self._scanner.finish()) if self._splits else ""

    def _release_thinking(self, split: Split) -> str:
        assert self._scanner is not None
        if not self._is_separate:
            if split.source:
                self._release(split.source)
            return split.answer
        if split.thinking:
            self._released_thinking.append(split.thinking)
        self._num_released += len(split.source)
        if self._entries:
            self._release_entries()
        self._strips_line_breaks = self._scanner.is_over and self._scanner.has_thinking
        return split.answer

    def _release(self, text: str) -> None:
        self._num_released += len(text)
        if self._strips_line_breaks:
            text = text.lstrip("\r\n")
            self._strips_line_breaks = not text
        if text:
            self._released.append(text)
        if self._entries:
            self._release_entries()

    def _release_entries(self) -> None:
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


def _at(logprob: SampledLogprob, offset: int) -> SampledLogprob:
    return SampledLogprob(logprob.token_id, logprob.logprob, logprob.top, offset)
