"""Refuses a prompt that is too long for the context by its bytes, before it is tokenized."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from core.contract.errors import ContextLengthExceeded
from schemas.sampling import SamplingFields
from server.admission.checkpoint import checkpoint
from server.served_model import ServedModel

CheckSize: TypeAlias = Callable[[int], None]
"""Called with the bytes of a text before it is tokenized. May raise."""


def no_check(_num_bytes: int) -> None:
    """Accept every size."""


def size_check(request: SamplingFields, model: ServedModel, *, param: str) -> CheckSize:
    """The check of the request's texts. ``param`` is their field.

    It raises ContextLengthExceeded for a text with more bytes than a context full of the longest
    tokens has, unless the request asks for its prompt to be cut. It is a checkpoint, too.
    """
    most = model.info.max_model_len
    if request.truncate_prompt_tokens is not None:
        return lambda _num_bytes: checkpoint()

    def check(num_bytes: int) -> None:
        checkpoint()
        if num_bytes <= most:  # a token has a byte at least
            return
        longest = model.tokenizer.max_bytes_per_token
        if longest is not None and num_bytes > most * longest:
            least = -(-num_bytes // longest)
            raise ContextLengthExceeded(
                f"This model's context length is {most} tokens, but the prompt has at least "
                f"{least}: its {num_bytes} bytes are more than {most * longest}.",
                param=param,
            )

    return check
