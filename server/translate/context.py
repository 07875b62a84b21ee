"""Errors of requests that do not fit into the context, in OpenAI's words.

Clients recognise them by their text: LiteLLM by "This model's maximum context length is".
"""

from __future__ import annotations

from core.contract.errors import ContextLengthExceeded


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
