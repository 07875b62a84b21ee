"""Detokenizers: from token ids to complete UTF-8, in time linear in the text.

The first step of text: a token gives the characters that it completes. Sans-IO and owned by one
sequence: ``feed`` each token, ``finish`` once.
"""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from core.text.vocabulary import Vocabulary

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_MAX_CHARACTER = 4  # bytes of UTF-8
_NUM_CONTEXT_TOKENS = 6
_MAX_PENDING_TOKENS = 12


class Detokenizer(Protocol):
    """Turns the tokens of one sequence into text, one by one."""

    def feed(self, token_id: int) -> str:
        """Return the text that this token completes; empty while a character is unfinished."""
        ...

    def finish(self) -> str:
        """Return the rest: one U+FFFD for the bytes of an unfinished character."""
        ...


def detokenizer_for(
    vocabulary: Vocabulary, *, prompt_token_ids: Sequence[int], skip_special_tokens: bool
) -> Detokenizer:
    """Make the detokenizer for text that follows ``prompt_token_ids``.

    Only the end of the prompt is read. A tokenizer that strips the first space of a text does so
    only if the prompt has no text.
    """
    hidden_ids = vocabulary.special_ids if skip_special_tokens else frozenset[int]()
    prompt = (token_id for token_id in reversed(prompt_token_ids) if token_id not in hidden_ids)
    if vocabulary.is_exact:
        tail = _tail(vocabulary.token_bytes, prompt)
        return ByteDetokenizer(
            vocabulary.token_bytes,
            hidden_ids=hidden_ids,
            prompt_tail=_incomplete(tail),
            strips_leading_space=vocabulary.strips_leading_space and not tail,
        )
    context = list(itertools.islice(prompt, _NUM_CONTEXT_TOKENS))
    return WindowDetokenizer(vocabulary.decode, hidden_ids=hidden_ids, context=context[::-1])


class ByteDetokenizer:
    """Joins the bytes of tokens and decodes them as UTF-8.

    ``prompt_tail`` holds the first bytes of a character that the prompt left unfinished. The
    output begins with that character if the first token continues it; otherwise the bytes are
    dropped.
    """

    __slots__ = ("_bytes_of", "_hidden_ids", "_is_begun", "_strips", "_unfinished")

    def __init__(
        self,
        bytes_of: Callable[[int], bytes],
        *,
        hidden_ids: frozenset[int] = frozenset(),
        prompt_tail: bytes = b"",
        strips_leading_space: bool = False,
    ) -> None:
        self._bytes_of = bytes_of
        self._hidden_ids = hidden_ids
        self._unfinished = prompt_tail  # bytes of an unfinished character
        self._strips = strips_leading_space
        self._is_begun = not (prompt_tail or strips_leading_space)

    def feed(self, token_id: int) -> str:
        """Return the text that this token completes."""
        if token_id in self._hidden_ids:
            return ""
        data = self._bytes_of(token_id)
        if not self._is_begun and data:
            data = self._begin(data)
        if self._unfinished:
            data = self._unfinished + data
        text, num_decoded = codecs.utf_8_decode(data, "replace", False)
        self._unfinished = data[num_decoded:]
        return text

    def finish(self) -> str:
        """Return U+FFFD if a character is unfinished."""
        data = self._unfinished if self._is_begun else b""
        self._unfinished = b""
        return data.decode(errors="replace")

    def _begin(self, data: bytes) -> bytes:
        """Join the first bytes of the output with the end of the prompt."""
        self._is_begun = True
        if self._strips:
            return data.removeprefix(b" ")
        if data[0] & 0xC0 != 0x80:  # not a continuation byte
            self._unfinished = b""
        return data


class WindowDetokenizer:
    """Decodes a short window of tokens with and without the newest ones and returns the difference.

    For tokenizers whose decoder is not a table of bytes. ``context`` are the tokens before the
    first one. Each token is decoded a bounded number of times: text that ends with U+FFFD waits
    for more tokens, up to the number that a character may have.
    """

    __slots__ = ("_context", "_context_text", "_decode", "_hidden_ids", "_pending")

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        *,
        hidden_ids: frozenset[int] = frozenset(),
        context: Iterable[int] = (),
    ) -> None:
        self._decode = decode
        self._hidden_ids = hidden_ids
        self._context = list(context)
        self._context_text = decode(self._context)
        self._pending: list[int] = []

    def feed(self, token_id: int) -> str:
        """Return the text that this token completes."""
        if token_id in self._hidden_ids:
            return ""
        self._pending.append(token_id)
        text = self._decode(self._context + self._pending)
        if text.endswith(_REPLACEMENT) and len(self._pending) < _MAX_PENDING_TOKENS:
            return ""
        return self._release(text)

    def finish(self) -> str:
        """Return the text that was held back."""
        return self._release(self._decode(self._context + self._pending)) if self._pending else ""

    def _release(self, text: str) -> str:
        new = text[len(self._context_text) :]
        if new or len(self._pending) >= _MAX_PENDING_TOKENS:
            self._context = self._pending
            self._context_text = self._decode(self._context)
            self._pending = []
        return new


def _tail(bytes_of: Callable[[int], bytes], backwards: Iterator[int]) -> bytes:
    """Return the last bytes, enough for an unfinished character, of tokens in reverse order."""
    tail = b""
    for token_id in backwards:
        tail = bytes_of(token_id) + tail
        if len(tail) >= _MAX_CHARACTER:
            break
    return tail


def _incomplete(tail: bytes) -> bytes:
    """Return the bytes of the unfinished character at the end of ``tail``.

    An unfinished character has at most three bytes, so earlier bytes do not matter.
    """
    tail = tail[1 - _MAX_CHARACTER :]
    _, num_decoded = codecs.utf_8_decode(tail, "replace", False)
    return tail[num_decoded:]
