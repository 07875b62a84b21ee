"""No call of the tokenizer gets much more text than the context can hold."""

from __future__ import annotations

import dataclasses
from copy import deepcopy

import msgspec
import pytest
from tokenizers import AddedToken

from core.contract.errors import ContextLengthExceeded, InvalidRequest, RequestCancelled
from core.text.tokenizer import Tokenizer
from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest
from schemas.limits import MAX_PROMPTS
from server.apis.openai.chat import translate_chat
from server.apis.openai.completions import translate_completion
from server.generation.model import ServedModel
from server.settings.settings import Settings
from tests.support.engines import loaded
from tests.support.tokenizers import byte_level, word_piece

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


def prompts_of(model, prompt, **fields):
    body = msgspec.json.encode({"prompt": prompt, "max_tokens": 1} | fields)
    return translate_completion(msgspec.json.decode(body, type=CompletionRequest), model).prompts


def complete(model, text, **fields):
    [prompt] = prompts_of(model, text, **fields)
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


def test_the_vocabulary_is_not_read_for_a_text_of_ordinary_length():
    """Reading it takes as long as several steps, and the first long prompt would wait for it."""
    model = ServedModel.of(Settings(), loaded(object()))
    assert complete(model, DIGITS[: CONTEXT - 1])
    assert complete(model, DIGITS[: CONTEXT - 1], truncate_prompt_tokens=5)
    assert complete(model, DIGITS, truncate_prompt_tokens=5)
    assert "max_bytes_per_token" not in vars(model.tokenizer)


def test_long_tokens_are_no_reason_to_refuse(model, encoded):
    """A special token is one token of many characters."""
    special = model.tokenizer.decode([model.tokenizer.eos_token_id], skip_special_tokens=False)
    text = special * 400
    assert len(text) > 8 * CONTEXT / 2
    assert len(complete(model, text)) == 400


def test_a_suffix_is_tokenized_once_for_all_prompts(model, encoded):
    suffix = DIGITS[: CONTEXT - 100]
    prompts = prompts_of(model, ["a"] * MAX_PROMPTS, suffix=suffix)
    assert len(prompts) == MAX_PROMPTS
    assert len(prompts[0]) > CONTEXT / 2
    assert encoded.count(suffix) == 1


def test_a_suffix_above_the_context_is_refused_before_it_is_tokenized(model, encoded):
    too_long = "x" * (CONTEXT * model.tokenizer.max_bytes_per_token + 1)
    with pytest.raises(
        ContextLengthExceeded, match="your suffix resulted in at least 513 tokens"
    ) as caught:
        complete(model, "a", suffix=too_long)
    assert caught.value.param == "suffix"
    assert encoded == []


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_suffix_that_is_to_be_cut_is_cut_before_it_is_tokenized(model, encoded, side):
    options = {"truncate_prompt_tokens": 5, "truncation_side": side}
    found = complete(model, "a", suffix=DIGITS, **options)
    assert max(map(len, encoded)) < len(DIGITS)
    short = DIGITS[:1000] if side == "right" else DIGITS[-1000:]
    assert found == complete(model, "a", suffix=short, **options)


def test_the_suffixes_of_all_prompts_fit_into_the_budget(model, encoded):
    small = dataclasses.replace(model, settings=Settings(max_queued_prompt_tokens=100))
    assert len(prompts_of(small, ["a"] * 2, suffix="0123")) == 2
    encoded.clear()
    with pytest.raises(InvalidRequest, match="at most 100") as caught:
        prompts_of(small, ["a"] * MAX_PROMPTS, suffix="0123")
    assert caught.value.param == "suffix"
    assert encoded == ["0123"]


def test_a_client_that_has_left_ends_the_work_between_prompts_with_a_suffix(model, encoded, leave):
    leave(lambda: len(encoded) > 1)
    with pytest.raises(RequestCancelled):
        prompts_of(model, ["a"] * MAX_PROMPTS, suffix="b")
    assert encoded == ["b", "a"]


@pytest.mark.parametrize("ask", [complete, chat])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_prompt_that_is_to_be_cut_is_cut_before_it_is_tokenized(model, encoded, ask, side):
    options = {"truncate_prompt_tokens": 5, "truncation_side": side}
    found = ask(model, DIGITS, **options)
    assert max(map(len, encoded)) == 8 * CONTEXT < len(DIGITS)
    short = DIGITS[:1000] if side == "right" else DIGITS[-1000:]
    assert found == ask(model, short, **options)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_prompt_is_cut_before_it_is_tokenized_without_a_longest_token(model, encoded, side):
    tokenizer = Tokenizer(word_piece())
    assert tokenizer.max_bytes_per_token is None
    unbounded = dataclasses.replace(model, tokenizer=tokenizer)
    options = {"truncate_prompt_tokens": 5, "truncation_side": side}
    text = "fox the walking, " * 10_000
    found = complete(unbounded, text, **options)
    assert max(map(len, encoded)) == 8 * CONTEXT
    assert (
        found
        == tokenizer.encode(text, add_special_tokens=True)[
            slice(5) if side == "right" else slice(-5, None)
        ]
    )


@pytest.mark.parametrize("side", ["left", "right"])
def test_blanks_that_a_token_takes_are_no_tokens(model, side):
    """Many blanks are many tokens, until the token beside them is seen."""
    tokenizer = deepcopy(byte_level())
    strips = {"lstrip": True} if side == "right" else {"rstrip": True}
    tokenizer.add_tokens([AddedToken("<mask>", normalized=False, **strips)])
    info = msgspec.structs.replace(model.info, num_token_ids=len(tokenizer))
    taking = dataclasses.replace(model, tokenizer=Tokenizer(tokenizer), info=info)
    blanks = " " * 16 * CONTEXT
    assert len(taking.tokenizer.encode(blanks, add_special_tokens=False)) > 2 * CONTEXT
    mask = tokenizer.convert_tokens_to_ids("<mask>")
    if side == "right":
        assert complete(taking, blanks + "<mask>") == [mask]
    text, options = "a", {"truncate_prompt_tokens": 5, "truncation_side": side}
    whole = blanks + "<mask>" + text if side == "right" else text + "<mask>" + blanks
    assert mask in complete(taking, whole, **options)


def test_blanks_are_no_tokens(model, encoded):
    """More and more of the text is tokenized until there is enough."""
    unbounded = dataclasses.replace(model, tokenizer=Tokenizer(word_piece()))
    options = {"truncate_prompt_tokens": 5, "truncation_side": "right"}
    assert len(complete(unbounded, " " * 9 * CONTEXT + "fox " * 4000, **options)) == 5
    assert max(map(len, encoded)) == 32 * CONTEXT


def test_a_text_with_marks_is_cut_in_the_same_place(model):
    """Text of special tokens is kept apart from its surroundings, in pieces."""
    special = model.tokenizer.decode([model.tokenizer.eos_token_id], skip_special_tokens=False)
    options = {"truncate_prompt_tokens": 400, "truncation_side": "right"}
    text = (special + "0123456789") * 2000
    assert chat(model, text, **options) == chat(model, text[:1000], **options)
    assert model.tokenizer.eos_token_id not in chat(model, text, **options)


def test_a_client_that_has_left_ends_the_work_between_two_calls(model, encoded, leave):
    leave(lambda: bool(encoded))
    with pytest.raises(RequestCancelled):
        complete(model, DIGITS[: CONTEXT * model.tokenizer.max_bytes_per_token - 100])
    assert len(encoded) == 1
