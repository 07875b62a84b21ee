"""Log-probabilities in the formats of chat, completions and vLLM's prompt_logprobs.

They and other long lists become JSON slice by slice: one call of the encoder holds the interpreter
lock until it returns, which would stop the event loop for as long. Between slices other threads
run, and only one slice exists as objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import chain, islice
from typing import Any

import msgspec

from core.contract.messages import PromptLogprobs, SampledLogprob
from core.text.tokenizer import Tokenizer
from schemas import logprobs as wire

SLICE = 512
"""Values that are encoded in one call: items, times the weight of each."""

_encoder = msgspec.json.Encoder()


def encoded_list(items: Iterable[object], *, weight: int = 1) -> Any:
    """Encode a list of any length. The result stands for the list in what is encoded next.

    ``weight`` is about how many values an item has; SLICE: each is encoded alone.
    """
    rest, size = iter(items), max(1, SLICE // weight)
    slices = iter(lambda: list(islice(rest, size)), [])
    parts = [b"["]
    for part in slices:
        parts += [_encoder.encode(part)[1:-1], b","]
    if len(parts) > 1:
        parts.pop()
    parts.append(b"]")
    return msgspec.Raw(b"".join(parts))  # one copy: it may be long


def list_or_encoded(length: int, items: Iterable[object], *, weight: int = 1) -> Any:
    """Return ``items``, ``length`` of them, as a list if that is short, else encoded."""
    is_short = length * weight <= SLICE
    return list(items) if is_short else encoded_list(items, weight=weight)


def encoded_ids(token_ids: Sequence[int]) -> Any:
    """Token ids, encoded if there are many."""
    return list_or_encoded(len(token_ids), token_ids)


TokenName = Callable[[int], str]


def token_names(tokenizer: Tokenizer, *, as_ids: bool) -> TokenName:
    """A function from token id to text, or to ``token_id:17``. It remembers the texts."""
    return (lambda token_id: f"token_id:{token_id}") if as_ids else cache(tokenizer.token_text)


def chat_logprobs(
    entries: Sequence[SampledLogprob], tokenizer: Tokenizer, name: TokenName, num_top: int
) -> wire.ChatLogprobs:
    """``logprobs`` of a chat choice. Tokens that are part of a character have raw bytes."""

    def bytes_of(token_id: int) -> list[int]:
        return list(tokenizer.token_bytes(token_id))

    if len(entries) > 1:
        bytes_of = cache(bytes_of)
    tokens = (
        wire.TokenLogprob(
            token=name(entry.token_id),
            logprob=_value(entry),
            bytes=bytes_of(entry.token_id),
            top_logprobs=[
                wire.TopLogprob(token=name(token_id), logprob=value, bytes=bytes_of(token_id))
                for token_id, value in entry.top[:num_top]
            ],
        )
        for entry in entries
    )
    content = list_or_encoded(len(entries), tokens, weight=1 + num_top)
    return wire.ChatLogprobs(content=content)


def completion_logprobs(
    entries: Sequence[SampledLogprob],
    name: TokenName,
    num_top: int,
    *,
    offsets: Sequence[int] = (),
    offset: int = 0,
) -> wire.CompletionLogprobs:
    """``logprobs`` of a completion choice: four lists of equal length.

    The first ``len(offsets)`` entries belong to an echoed prompt. The generated text starts at
    ``offset`` in the choice's text.
    """
    size, generated = len(entries), entries[len(offsets) :]
    text_offset = chain(offsets, (offset + entry.text_offset for entry in generated))
    alternatives = (_alternatives(entry, name, num_top) for entry in entries)
    return wire.CompletionLogprobs(
        tokens=list_or_encoded(size, (name(entry.token_id) for entry in entries)),
        token_logprobs=list_or_encoded(size, (entry.logprob for entry in entries)),
        top_logprobs=list_or_encoded(size, alternatives, weight=1 + num_top),
        text_offset=list_or_encoded(size, text_offset),
    )


def prompt_logprobs(
    entries: PromptLogprobs | Sequence[SampledLogprob], tokenizer: Tokenizer, num_top: int
) -> wire.PromptLogprobs:
    """A map from token id to log-probability per position; null at the first."""

    def position(entry: SampledLogprob) -> dict[int, wire.PromptLogprob] | None:
        if entry.logprob is None:
            return None
        ranked = {
            token_id: wire.PromptLogprob(
                logprob=value, rank=rank, decoded_token=tokenizer.token_text(token_id)
            )
            for rank, (token_id, value) in enumerate(entry.top[:num_top], start=1)
        }
        text = tokenizer.token_text(entry.token_id)
        own = wire.PromptLogprob(logprob=entry.logprob, decoded_token=text)
        ranked.setdefault(entry.token_id, own)
        return ranked

    positions: wire.PromptLogprobs = list_or_encoded(
        len(entries), map(position, entries), weight=1 + num_top
    )
    return positions


def _alternatives(entry: SampledLogprob, name: TokenName, num_top: int) -> dict[str, float] | None:
    """Log-probabilities of the best tokens and the sampled one, by text.

    Of two tokens with the same text the likelier one is kept, unless the other was sampled.
    """
    if entry.logprob is None:
        return None
    result: dict[str, float] = {}
    for token_id, value in entry.top[:num_top]:
        result.setdefault(name(token_id), value)
    result[name(entry.token_id)] = entry.logprob
    return result


def _value(entry: SampledLogprob) -> float:
    assert entry.logprob is not None, "only a prompt's first token has no log-probability"
    return entry.logprob
