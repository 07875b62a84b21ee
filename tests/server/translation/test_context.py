"""Errors of the context, as clients that match OpenAI's texts see them."""

import re

import pytest

from core.contract.errors import ContextLengthExceeded
from server.translation.prompt_size import (
    answer_exceeds,
    beginning_exceeds,
    prompt_exceeds,
    prompt_exceeds_by_bytes,
)

START = re.compile(
    r"This model's maximum context length is 100 tokens\. However, (you requested|your|the first)"
)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            answer_exceeds(100, 60, 50, param="messages"),
            (
                "However, you requested 110 tokens (60 in the messages, 50 in the completion). "
                "Please reduce the length of the messages or completion."
            ),
        ),
        (
            prompt_exceeds(100, 120, param="messages"),
            (
                "However, your messages resulted in 120 tokens. Please reduce the length of the "
                "messages."
            ),
        ),
        (prompt_exceeds(100, 120, param="prompt"), "your prompt resulted in 120 tokens."),
        (prompt_exceeds(100, 120, param="prompt[3]"), "your prompt resulted in 120 tokens."),
        (
            prompt_exceeds_by_bytes(100, 120, 900, param="suffix"),
            "your suffix resulted in at least 120 tokens (900 bytes).",
        ),
        (
            beginning_exceeds(100, 800, 201, param="messages"),
            "the first 800 characters of your messages resulted in 201 tokens.",
        ),
    ],
)
def test_the_words_are_openai_s(error, says):
    assert isinstance(error, ContextLengthExceeded)
    assert error.code == "context_length_exceeded"
    assert START.match(error.message)
    assert says in error.message
