"""No call of the tokenizer gets much more text than the context can hold."""

from __future__ import annotations

import msgspec
import pytest

from core.contract.errors import ContextLengthExceeded, RequestCancelled
from core.text.tokenizer import Tokenizer
from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest
from server.admission.checkpoint import is_abandoned
from server.served_model import ServedModel
from server.settings import Settings
from server.translate.chat import translate_chat
from server.translate.completions import translate_completion
from tests.support.engines import loaded

CONTEXT = 512
DIGITS = "".join(f"{i:05}" for i in range(10_000))


@pytest.fixture(scope="module")
def model():
    return ServedModel.of(Settings(), loaded(object()))


@pytest.fixture
def encoded(monkeypatch):
    """The texts that were tokenized."""
    texts = []
    encode = Tokenizer.encode

    def noting(self, text, **options):
        texts.append(text)
        return encode(self, text, **options)

    monkeypatch.setattr(Tokenizer, "encode", noting)
    return texts


def complete(model, text, **fields):
    body = msgspec.json.encode({"prompt": text, "max_tokens": 1} | fields)
    [prompt] = translate_completion(
        msgspec.json.decode(body, type=CompletionRequest), model
    ).prompts
    return list(prompt)


def chat(model, text, **fields):
    messages = [{"role": "user", "content": text}]
    body = msgspec.json.encode({"messages": messages, "max_tokens": 1} | fields)
    request = msgspec.json.decode(body, type=ChatCompletionRequest)
    [prompt] = translate_chat(request, model).prompts
    return list(prompt)


@pytest.mark.parametrize("ask", [complete, chat])
def test_a_beginning_with_too_many_tokens_is_enough(model, encoded, ask):
    """The bytes would fit if all tokens were the longest."""
    text = DIGITS[: CONTEXT * model.tokenizer.max_bytes_per_token - 100]
    with pytest.raises(ContextLengthExceeded, match="the first 4096 characters"):
        ask(model, text)
    assert max(map(len, encoded)) == 8 * CONTEXT < len(text) / 2


def test_a_text_that_fits_is_tokenized_once(model, encoded):
    assert complete(model, DIGITS[: CONTEXT - 1])
    assert len(encoded) == 1


def test_long_tokens_are_no_reason_to_refuse(model, encoded):
    """A special token is one token of many characters."""
    special = model.tokenizer.decode([model.tokenizer.eos_token_id], skip_special_tokens=False)
    text = special * 400
    assert len(text) > 8 * CONTEXT / 2
    assert len(complete(model, text)) == 400


@pytest.mark.parametrize("ask", [complete, chat])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_prompt_that_is_to_be_cut_is_cut_before_it_is_tokenized(model, encoded, ask, side):
    options = {"truncate_prompt_tokens": 5, "truncation_side": side}
    found = ask(model, DIGITS, **options)
    most = 2 * CONTEXT * model.tokenizer.max_bytes_per_token
    assert max(map(len, encoded)) <= most < len(DIGITS)
    short = DIGITS[:1000] if side == "right" else DIGITS[-1000:]
    assert found == ask(model, short, **options)


def test_a_text_with_marks_is_cut_in_the_same_place(model):
    """Text of special tokens is kept apart from its surroundings, in pieces."""
    special = model.tokenizer.decode([model.tokenizer.eos_token_id], skip_special_tokens=False)
    options = {"truncate_prompt_tokens": 400, "truncation_side": "right"}
    text = (special + "0123456789") * 2000
    assert chat(model, text, **options) == chat(model, text[:1000], **options)
    assert model.tokenizer.eos_token_id not in chat(model, text, **options)


def test_a_client_that_has_left_ends_the_work_between_two_calls(model, encoded):
    token = is_abandoned.set(lambda: bool(encoded))
    try:
        with pytest.raises(RequestCancelled):
            complete(model, DIGITS[: CONTEXT * model.tokenizer.max_bytes_per_token - 100])
    finally:
        is_abandoned.reset(token)
    assert len(encoded) == 1
