"""Token ids and numbers to the log-probability objects of the three formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core.contract.messages import TokenLogprob
from core.text.tokenizer import Tokenizer
from schemas import logprobs as wire

TokenName = Callable[[int], str]


def token_names(tokenizer: Tokenizer, *, as_ids: bool) -> TokenName:
    """How tokens are shown: as text, or as ``token_id:17``."""
    return (lambda token_id: f"token_id:{token_id}") if as_ids else tokenizer.token_text


def chat_logprobs(
    entries: Sequence[TokenLogprob], tokenizer: Tokenizer, name: TokenName, num_top: int
) -> wire.ChatLogprobs:
    """Entries of a chat choice, with raw bytes even for fragments of characters."""
    return wire.ChatLogprobs(
        content=[
            wire.TokenLogprob(
                token=name(entry.token_id),
                logprob=_value(entry),
                bytes=list(tokenizer.token_bytes(entry.token_id)),
                top_logprobs=[
                    wire.TopLogprob(
                        token=name(token_id),
                        logprob=value,
                        bytes=list(tokenizer.token_bytes(token_id)),
                    )
                    for token_id, value in entry.top[:num_top]
                ],
            )
            for entry in entries
        ]
    )


def completion_logprobs(
    entries: Sequence[TokenLogprob],
    name: TokenName,
    num_top: int,
    *,
    offsets: Sequence[int] = (),
    offset: int = 0,
) -> wire.CompletionLogprobs:
    """Four aligned lists: the first ``len(offsets)`` entries belong to an echoed prompt.

    ``offset`` is where the generated text begins.
    """
    generated = entries[len(offsets) :]
    return wire.CompletionLogprobs(
        tokens=[name(entry.token_id) for entry in entries],
        token_logprobs=[entry.logprob for entry in entries],
        top_logprobs=[_alternatives(entry, name, num_top) for entry in entries],
        text_offset=[*offsets, *(offset + entry.text_offset for entry in generated)],
    )


def prompt_logprobs(
    entries: Sequence[TokenLogprob], tokenizer: Tokenizer, num_top: int
) -> wire.PromptLogprobs:
    """vLLM's form: a map from token id for each position, null at the first."""
    result: wire.PromptLogprobs = []
    for entry in entries:
        if entry.logprob is None:
            result.append(None)
            continue
        ranked = {
            token_id: wire.PromptLogprob(
                logprob=value, rank=rank, decoded_token=tokenizer.token_text(token_id)
            )
            for rank, (token_id, value) in enumerate(entry.top[:num_top], start=1)
        }
        ranked.setdefault(
            entry.token_id,
            wire.PromptLogprob(
                logprob=entry.logprob, decoded_token=tokenizer.token_text(entry.token_id)
            ),
        )
        result.append(ranked)
    return result


def _alternatives(entry: TokenLogprob, name: TokenName, num_top: int) -> dict[str, float] | None:
    """The best tokens and the actual one, by text.

    Where two have the same text the likelier one is shown, but never instead of the actual
    token: its value must be found under its own key.
    """
    if entry.logprob is None:
        return None
    result: dict[str, float] = {}
    for token_id, value in entry.top[:num_top]:
        result.setdefault(name(token_id), value)
    result[name(entry.token_id)] = entry.logprob
    return result


def _value(entry: TokenLogprob) -> float:
    assert entry.logprob is not None, "a generated token always has a value"
    return entry.logprob
