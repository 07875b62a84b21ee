"""Bounds the work of the tokenizer, whose calls cannot be interrupted, by the model's context.

Errors of requests that do not fit into the context, in OpenAI's words.

Clients recognise them by their text: LiteLLM by "This model's maximum context length is".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from core.contract.errors import ContextLengthExceeded, InvalidRequest
from core.text.tokenizer import Tokenizer
from schemas.limits import MAX_TOKENIZED
from schemas.messages import Message
from schemas.sampling import SamplingFields
from server.admission.pools import checkpoint
from server.generation.model import ServedModel


def prompt_exceeds(most: int, num_tokens: int, *, param: str) -> ContextLengthExceeded:
    """The prompt alone has more tokens than the context. ``param`` is its field."""
    return _prompt_error(most, f"your {_noun(param)} resulted in {num_tokens} tokens", param)


def prompt_exceeds_by_bytes(
    most: int, least_tokens: int, num_bytes: int, *, param: str
) -> ContextLengthExceeded:
    """The prompt has more bytes than a context of the longest tokens."""
    what = f"your {_noun(param)} resulted in at least {least_tokens} tokens ({num_bytes} bytes)"
    return _prompt_error(most, what, param)


def beginning_exceeds(
    most: int, num_characters: int, num_tokens: int, *, param: str
) -> ContextLengthExceeded:
    """The beginning of the prompt has more tokens than the context."""
    what = f"the first {num_characters} characters of your {_noun(param)} resulted in "
    return _prompt_error(most, what + f"{num_tokens} tokens", param)


def answer_exceeds(
    most: int, num_prompt_tokens: int, num_answer_tokens: int, *, param: str
) -> ContextLengthExceeded:
    """The prompt fits, but not the answer that was asked for beside it."""
    noun = _noun(param)
    return ContextLengthExceeded(
        f"This model's maximum context length is {most} tokens. However, you requested "
        f"{num_prompt_tokens + num_answer_tokens} tokens ({num_prompt_tokens} in the {noun}, "
        f"{num_answer_tokens} in the completion). Please reduce the length of the {noun} or "
        "completion.",
        param=param,
    )


def _prompt_error(most: int, what: str, param: str) -> ContextLengthExceeded:
    return ContextLengthExceeded(
        f"This model's maximum context length is {most} tokens. However, {what}. Please reduce "
        f"the length of the {_noun(param)}.",
        param=param,
    )


def _noun(param: str) -> str:
    name = param.partition("[")[0]
    return name if name in ("messages", "suffix", "input", "documents", "query") else "prompt"


CheckSize: TypeAlias = Callable[[str], slice]
"""Called with a text before it is tokenized; returns the part to tokenize. May raise."""

CHARACTERS_PER_TOKEN = 8
"""A text with more characters than this for each token of the context is refused for its bytes, or
tokenized in parts first. Ordinary text that fits has fewer: it is tokenized at once, and nothing
has to be known of the vocabulary, all of which the check of the bytes reads once."""

SURPLUS = 2
"""A beginning with this many times the tokens of the context is too long, however it goes on: a
tokenizer may join the last tokens of the beginning with what follows, but not half of them."""


def no_check(text: str) -> slice:
    """Accept every size."""
    return slice(0, len(text))


def check_messages_size(messages: Sequence[Message] | None) -> None:
    """Refuse a conversation that is too large to be tokenized only to be counted.

    Such requests may exceed the context. Raises InvalidRequest.
    """
    size = len(msgspec.json.encode(messages))
    if size > MAX_TOKENIZED:
        raise InvalidRequest(
            f"messages have {size} bytes; the limit is {MAX_TOKENIZED}.",
            param="messages",
            code="string_above_max_length",
        )


def size_check(request: SamplingFields, model: ServedModel, *, param: str) -> CheckSize:
    """The check of the request's texts. ``param`` is their field.

    It raises ContextLengthExceeded for a text that has too many bytes or whose beginning has too
    many tokens, and is a checkpoint. A text whose prompt is to be cut to the context is cut to so
    many characters that they have enough tokens.
    """
    most, tokenizer = model.info.max_model_len, model.tokenizer
    if request.truncate_prompt_tokens is not None:
        keeps_start = request.truncation_side == "right"
        return lambda text: _cut(text, tokenizer, most, keeps_start=keeps_start)

    def check(text: str) -> slice:
        checkpoint()
        if len(text) > CHARACTERS_PER_TOKEN * most:
            _check_bytes(text, tokenizer, most, param)
            _check_beginnings(text, tokenizer, most, param)
        return slice(0, len(text))

    return check


def _check_bytes(text: str, tokenizer: Tokenizer, most: int, param: str) -> None:
    """Refuse a text with more bytes than a context full of the longest tokens."""
    longest = tokenizer.max_bytes_per_token
    num_bytes = len(text.encode(errors="surrogatepass"))
    if longest is not None and num_bytes > most * longest:
        least = -(-num_bytes // longest)
        raise prompt_exceeds_by_bytes(most, least, num_bytes, param=param)


def _check_beginnings(text: str, tokenizer: Tokenizer, most: int, param: str) -> None:
    """Tokenize longer and longer beginnings, until one is too long or the rest is not much."""
    if (found := _long_part(text, tokenizer, most)) is not None:
        raise beginning_exceeds(most, *found, param=param)


def _long_part(
    text: str, tokenizer: Tokenizer, most: int, *, keeps_start: bool = True
) -> tuple[int, int] | None:
    """The characters and tokens of a beginning, or an end, with many more tokens than fit.

    None if there is none that is much shorter than the text. Blanks where the text goes on are
    not counted if a token that follows may take them all.
    """
    size = CHARACTERS_PER_TOKEN * most
    while size < len(text):
        part = text[:size] if keeps_start else text[-size:]
        if tokenizer.takes_blanks:
            part = part.rstrip() if keeps_start else part.lstrip()
        count = len(tokenizer.encode(part, add_special_tokens=False))
        checkpoint()
        if count > SURPLUS * most:
            return size, count
        size *= 2
    return None


def _cut(text: str, tokenizer: Tokenizer, most: int, *, keeps_start: bool) -> slice:
    """The beginning, or the end, of a long text that has many more tokens than fit.

    It is found by tokenizing: the bound on the bytes of a token is far above what tokens have.
    """
    checkpoint()
    found = _long_part(text, tokenizer, most, keeps_start=keeps_start)
    size = len(text) if found is None else found[0]
    return slice(0, size) if keeps_start else slice(len(text) - size, len(text))
