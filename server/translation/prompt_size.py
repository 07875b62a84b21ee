"""The size of prompts: bounds the tokenizer's work, which cannot be interrupted, by the context.

Clients recognise errors of the context by OpenAI's words: LiteLLM by "This model's maximum context
length is".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from core.contract.errors import ContextLengthExceeded
from core.contract.info import EngineInfo
from core.text.tokenizer import Tokenizer
from schemas.sampling import SamplingFields
from server.generation.model import ServedModel
from server.http.errors import invalid
from server.workers.pools import checkpoint

CheckSize: TypeAlias = Callable[[str], slice]
"""Called with a text before it is tokenized; returns the part to tokenize. May raise."""

CHARACTERS_PER_TOKEN = 8
"""A text with more characters than this for each token of the context is refused for its bytes, or
tokenized in parts first. Ordinary text that fits has fewer: it is tokenized at once, and nothing
has to be known of the vocabulary, all of which the check of the bytes reads once."""

SURPLUS = 2
"""A beginning with this many times the tokens of the context is too long, however it goes on: a
tokenizer may join the last tokens of the beginning with what follows, but not half of them."""


def size_check(request: SamplingFields, model: ServedModel, *, param: str) -> CheckSize:
    """The check of the request's texts. ``param`` is their field.

    It raises ContextLengthExceeded for a text that has too many bytes or whose beginning has too
    many tokens, and is a checkpoint. A text whose prompt is to be cut to the context is cut to so
    many characters that they have enough tokens.
    """
    most, tokenizer = model.info.max_model_len, model.tokenizer
    is_cut = request.truncate_prompt_tokens is not None
    keeps_start = not is_cut or request.truncation_side == "right"

    def check(text: str) -> slice:
        checkpoint()
        if len(text) <= CHARACTERS_PER_TOKEN * most:
            return slice(0, len(text))
        if not is_cut:  # the bound on the bytes of a token is far above what tokens have
            _check_bytes(text, tokenizer, most, param)
        found = _long_part(text, tokenizer, most, keeps_start=keeps_start)
        if found is None:
            return slice(0, len(text))
        size, num_tokens = found
        if not is_cut:
            what = f"the first {size} characters of your {_noun(param)} resulted in {num_tokens}"
            raise _too_long(most, f"{what} tokens", param)
        return slice(0, size) if keeps_start else slice(len(text) - size, len(text))

    return check


def _check_bytes(text: str, tokenizer: Tokenizer, most: int, param: str) -> None:
    """Refuse a text with more bytes than a context full of the longest tokens."""
    longest = tokenizer.max_bytes_per_token
    num_bytes = len(text.encode(errors="surrogatepass"))
    if longest is not None and num_bytes > most * longest:
        what = f"at least {-(-num_bytes // longest)} tokens ({num_bytes} bytes)"
        raise _too_long(most, f"your {_noun(param)} resulted in {what}", param)


def _long_part(
    text: str, tokenizer: Tokenizer, most: int, *, keeps_start: bool
) -> tuple[int, int] | None:
    """The characters and tokens of a beginning, or an end, with many more tokens than fit.

    Tokenizes longer and longer parts. None if there is none that is much shorter than the text.
    Blanks where the text goes on are not counted if a token that follows may take them all.
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


def answer_length(
    prompt: Sequence[int],
    max_tokens: int | None,
    info: EngineInfo,
    *,
    param: str,
    is_clamped: bool = False,
) -> int:
    """Check the ids and the length of a prompt; returns the number of tokens to generate at most.

    ``max_tokens`` None means all that fit, and so does more than fits with ``is_clamped``.
    ``param`` is the field of the prompt. Raises InvalidRequest, ContextLengthExceeded.
    """
    num_tokens, most, noun = len(prompt), info.max_model_len, _noun(param)
    room = most - num_tokens
    if room < 0 or (room == 0 and max_tokens != 0):
        raise prompt_exceeds(most, num_tokens, param=param)
    if max(prompt, default=0) >= info.num_token_ids:
        raise invalid(
            param,
            f"The prompt has token id {max(prompt)}, but the model's ids are below "
            f"{info.num_token_ids}.",
        )
    if max_tokens is None:
        return room
    if max_tokens > room and not is_clamped:
        raise ContextLengthExceeded(
            f"This model's maximum context length is {most} tokens. However, you requested "
            f"{num_tokens + max_tokens} tokens ({num_tokens} in the {noun}, {max_tokens} in the "
            f"completion). Please reduce the length of the {noun} or completion.",
            param=param,
        )
    return min(max_tokens, room)


def prompt_exceeds(most: int, num_tokens: int, *, param: str) -> ContextLengthExceeded:
    """The prompt alone has more tokens than the context. ``param`` is its field."""
    return _too_long(most, f"your {_noun(param)} resulted in {num_tokens} tokens", param)


def _too_long(most: int, what: str, param: str) -> ContextLengthExceeded:
    return ContextLengthExceeded(
        f"This model's maximum context length is {most} tokens. However, {what}. Please reduce "
        f"the length of the {_noun(param)}.",
        param=param,
    )


def _noun(param: str) -> str:
    name = param.partition("[")[0]
    return name if name in ("messages", "suffix", "input", "documents", "query") else "prompt"
