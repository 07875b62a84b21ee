import msgspec
import pytest

from core.contract.messages import SampledLogprob
from server.rendering.logprobs import (
    SLICE,
    chat_logprobs,
    completion_logprobs,
    prompt_logprobs,
    token_names,
)


@pytest.fixture
def name(tokenizer):
    return token_names(tokenizer, as_ids=False)


@pytest.fixture
def smile(tokenizer):
    """Ids of a character that is several tokens."""
    return tokenizer.encode("é", add_special_tokens=False) + tokenizer.encode(
        "\U0001f9ff", add_special_tokens=False
    )


def builtins(value):
    return msgspec.to_builtins(value)


def test_parts_of_a_character_have_raw_bytes(tokenizer, name, smile):
    entries = [SampledLogprob(token_id, -1.0) for token_id in smile]
    found = builtins(chat_logprobs(entries, tokenizer, name, 0))
    assert found["refusal"] is None
    assert bytes(b for e in found["content"] for b in e["bytes"]).decode() == "é\U0001f9ff"
    assert any("\\x" in e["token"] for e in found["content"])
    assert all(e["top_logprobs"] == [] for e in found["content"])


def test_no_more_alternatives_than_requested(tokenizer, name):
    entry = SampledLogprob(9, -3.0, ((5, -0.1), (6, -0.2), (7, -0.3)))
    for num_top in range(4):
        [found] = builtins(chat_logprobs([entry], tokenizer, name, num_top))["content"]
        assert [top["logprob"] for top in found["top_logprobs"]] == [-0.1, -0.2, -0.3][:num_top]
        assert found["logprob"] == -3.0
        [found] = completion_logprobs([entry], name, num_top).top_logprobs
        assert len(found) == num_top + 1
        assert found[name(9)] == -3.0


def test_the_sampled_token_keeps_its_own_value(name):
    entry = SampledLogprob(5, -0.1, ((5, -0.1), (6, -0.2)))
    assert completion_logprobs([entry], name, 2).top_logprobs == [{name(5): -0.1, name(6): -0.2}]


def test_two_tokens_with_the_same_text(tokenizer):
    entry = SampledLogprob(7, -0.3, ((5, -0.1), (6, -0.2), (7, -0.3)))
    same = {5: "x", 6: "x", 7: "y", 8: "x"}.__getitem__
    assert completion_logprobs([entry], same, 3).top_logprobs == [{"x": -0.1, "y": -0.3}]
    actual = SampledLogprob(8, -4.0, ((5, -0.1),))
    found = completion_logprobs([actual], same, 1)
    assert found.top_logprobs == [{"x": -4.0}]  # the sampled token's
    assert found.token_logprobs == [-4.0]


def test_offsets_of_prompt_and_generated_text(name):
    entries = [SampledLogprob(1, None), SampledLogprob(2, -1.0), SampledLogprob(3, -1.0, (), 4)]
    found = completion_logprobs(entries, name, 0, offsets=[0, 2], offset=5)
    assert found.text_offset == [0, 2, 9]
    assert found.token_logprobs == [None, -1.0, -1.0]
    assert found.top_logprobs[0] is None


def test_prompt_logprobs(tokenizer):
    entries = [SampledLogprob(1, None), SampledLogprob(6, -0.2, ((5, -0.1), (6, -0.2)))]
    first, second = builtins(prompt_logprobs(entries, tokenizer, 2))
    assert first is None
    assert [(k, v["rank"], v["logprob"]) for k, v in second.items()] == [(5, 1, -0.1), (6, 2, -0.2)]
    assert second[6]["decoded_token"] == tokenizer.token_text(6)
    [_, only] = builtins(prompt_logprobs(entries, tokenizer, 0))
    assert only.keys() == {6}


def test_tokens_as_ids(tokenizer):
    assert token_names(tokenizer, as_ids=True)(17) == "token_id:17"
    assert token_names(tokenizer, as_ids=False)(17) == tokenizer.token_text(17)


@pytest.mark.parametrize("length", [SLICE, SLICE + 1, 3 * SLICE])
def test_long_lists_are_those_of_the_entries(tokenizer, name, length):
    entries = [
        SampledLogprob(i % 200, None if i == 0 else -i / 7, ((5, -0.1), (i % 50, -0.2)), i)
        for i in range(length)
    ]

    def encoded(value):
        return msgspec.json.decode(msgspec.json.encode(value))

    whole = encoded(completion_logprobs(entries, name, 2, offsets=[0] * 3, offset=4))
    singles = [encoded(completion_logprobs([entry], name, 2)) for entry in entries]
    for key in ("tokens", "token_logprobs", "top_logprobs"):
        assert whole[key] == [value for single in singles for value in single[key]]
    assert whole["text_offset"] == [0] * 3 + [i + 4 for i in range(3, length)]
    singles = [prompt_logprobs([entry], tokenizer, 2) for entry in entries]
    assert encoded(prompt_logprobs(entries, tokenizer, 2)) == encoded([p for [p] in singles])
    singles = [chat_logprobs([entry], tokenizer, name, 2) for entry in entries[1:]]
    whole = encoded(chat_logprobs(entries[1:], tokenizer, name, 2))
    assert whole["content"] == [encoded(single)["content"][0] for single in singles]


def test_many_alternatives_do_not_wait_as_objects(tokenizer, name):
    """Ten answers of 400 tokens with 20 alternatives each would be 84,000 objects."""
    top = tuple((token_id, -0.1 * token_id) for token_id in range(20))
    entries = [SampledLogprob(1, -0.1, top)] * 400
    chat = chat_logprobs(entries, tokenizer, name, 20)
    assert isinstance(chat.content, msgspec.Raw)
    assert isinstance(completion_logprobs(entries, name, 20).top_logprobs, msgspec.Raw)
    assert isinstance(prompt_logprobs(entries, tokenizer, 20), msgspec.Raw)
    assert len(msgspec.json.decode(chat.content)) == 400
