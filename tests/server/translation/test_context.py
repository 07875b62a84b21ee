"""Errors of the context, as clients that match OpenAI's texts see them."""

import re

import pytest

from core.contract.errors import ContextLengthExceeded
from schemas.completions import CompletionRequest
from server.generation.model import ServedModel
from server.settings.settings import Settings
from server.translation.prompt_size import answer_length, prompt_exceeds, size_check
from tests.support.engines import loaded
from tests.support.tokenizers import byte_level

START = re.compile(
    r"This model's maximum context length is 512 tokens\. However, (you requested|your|the first)"
)
MODEL = ServedModel.of(Settings(), loaded(object(), byte_level()))
LONGEST = MODEL.tokenizer.max_bytes_per_token


def answer(num_tokens, max_tokens, param):
    return lambda: answer_length([1] * num_tokens, max_tokens, MODEL.info, param=param)


def text(size, param):
    shown = ("0123456789" * size)[:size]
    return lambda: size_check(CompletionRequest(), MODEL, param=param)(shown)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            answer(500, 50, "messages"),
            r"550 tokens \(500 in the messages, 50 in the completion\)\. .* or completion\.",
        ),
        (
            answer(520, 1, "messages"),
            r"your messages resulted in 520 tokens\. Please reduce the length of the messages\.",
        ),
        (answer(520, 1, "prompt[3]"), r"your prompt resulted in 520 tokens\."),
        (
            text(520 * LONGEST, "suffix"),
            rf"your suffix resulted in at least 520 tokens \({520 * LONGEST} bytes\)\.",
        ),
        (
            text(500 * LONGEST, "messages"),
            r"the first 4096 characters of your messages resulted in \d+ tokens\.",
        ),
    ],
)
def test_the_words_are_openai_s(call, says):
    with pytest.raises(ContextLengthExceeded, match=says) as caught:
        call()
    assert caught.value.code == "context_length_exceeded"
    assert START.match(caught.value.message)


@pytest.mark.parametrize("param", ["suffix", "input", "documents[2]", "query"])
def test_fields_of_other_names_are_named(param):
    error = prompt_exceeds(100, 120, param=param)
    assert f"your {param.partition('[')[0]} resulted in 120 tokens." in error.message
    assert error.param == param
