import msgspec
import pytest

from core.contract.errors import ContextLengthExceeded, InvalidRequest
from core.contract.grammar import structural_tags
from core.contract.params import SamplingParams
from schemas.completions import CompletionRequest
from server.translation.params import sampling_params
from server.translation.prompt_size import answer_length
from tests.support.each import each


def decode(**fields):
    return msgspec.json.decode(msgspec.json.encode(fields), type=CompletionRequest)


@pytest.fixture
def translate(tokenizer, info):
    def translate(
        defaults=None, *, max_tokens=10, logprobs=None, echo_logprobs=None, grammar=None, **fields
    ):
        return sampling_params(
            decode(**fields),
            max_tokens=max_tokens,
            logprobs=logprobs,
            echo_logprobs=echo_logprobs,
            grammar=grammar,
            info=info(default_sampling=defaults or {}, eos_token_ids=(2,)),
            tokenizer=tokenizer,
        )

    return translate


def refused(translate, param, code, **fields):
    with pytest.raises(InvalidRequest) as caught:
        translate(**fields)
    assert (caught.value.param, caught.value.code) == (param, code)
    return caught.value.message


def test_an_empty_request_gets_openai_s_defaults(translate):
    assert translate() == SamplingParams(max_tokens=10, temperature=1.0, top_p=1.0, top_k=0)


# field and value of the request, field and value of SamplingParams
GIVEN = [
    ("temperature", 0.5, "temperature", 0.5),
    ("temperature", 0, "temperature", 0.0),
    ("top_p", 0.5, "top_p", 0.5),
    ("top_p", 0, "top_p", 0.0),
    ("top_k", 7, "top_k", 7),
    ("top_k", 0, "top_k", 0),
    ("top_k", -1, "top_k", 0),
    ("min_p", 0.25, "min_p", 0.25),
    ("min_p", 0, "min_p", 0.0),
    ("seed", 7, "seed", 7),
    ("seed", 0, "seed", 0),
    ("seed", -1, "seed", None),
    ("seed", -(2**63), "seed", -(2**63)),
    ("seed", 2**63 - 1, "seed", 2**63 - 1),
    ("presence_penalty", -2, "presence_penalty", -2.0),
    ("frequency_penalty", 2, "frequency_penalty", 2.0),
    ("repetition_penalty", 1.5, "repetition_penalty", 1.5),
    ("min_tokens", 3, "min_tokens", 3),
    ("min_tokens", 0, "min_tokens", 0),
    ("ignore_eos", True, "ignore_eos", True),
    ("stop", "a", "stop", ("a",)),
    ("stop", ["a", "b"], "stop", ("a", "b")),
    ("stop", [], "stop", ()),
    ("stop_token_ids", [3, 0], "stop_token_ids", (3, 0)),
    ("stop_token_ids", [], "stop_token_ids", ()),
    ("include_stop_str_in_output", True, "include_stop_str_in_output", True),
    ("no_stop_trim", True, "include_stop_str_in_output", True),
    ("skip_special_tokens", False, "skip_special_tokens", False),
    ("skip_special_tokens", True, "skip_special_tokens", True),
    ("allowed_token_ids", [5, 0], "allowed_token_ids", (5, 0)),
    ("logit_bias", {"0": -100, "399": 2.5}, "logit_bias", {0: -100.0, 399: 2.5}),
    ("logit_bias", {}, "logit_bias", {}),
    ("prompt_logprobs", 0, "prompt_logprobs", 0),
    ("prompt_logprobs", 20, "prompt_logprobs", 20),
]


@each(("field", "given", "name", "value"), GIVEN)
def test_given_values_are_kept_also_zero(translate, field, given, name, value):
    assert getattr(translate(**{field: given}), name) == value


@each("field", sorted({field for field, *_ in GIVEN}))
def test_null_equals_a_missing_field(translate, field):
    assert translate(**{field: None}) == translate()


@pytest.mark.parametrize(
    ("field", "default", "given"),
    [
        ("temperature", 0.6, 0),
        ("top_p", 0.9, 1),
        ("top_k", 20, 0),
        ("top_k", 20, -1),
        ("min_p", 0.1, 0),
        ("repetition_penalty", 1.1, 1),
    ],
)
def test_missing_fields_get_the_model_s_defaults(translate, field, default, given):
    assert getattr(translate({field: default}), field) == default
    assert getattr(translate({field: default}, **{field: None}), field) == default
    assert getattr(translate({field: default}, **{field: given}), field) == max(given, 0)


def test_vllm_s_spelling_overrides_sglang_s(translate):
    params = translate(include_stop_str_in_output=False, no_stop_trim=True)
    assert params.include_stop_str_in_output is False


@each("key", ["abc", "-1", "400", "1.5", "", "٣", "1e2", "9" * 1000, " 1"])
def test_logit_bias_of_invalid_tokens_is_refused(translate, key):
    message = refused(translate, "logit_bias", "invalid_value", logit_bias={key: 1})
    assert len(message) < 200


@pytest.mark.parametrize("field", ["allowed_token_ids", "stop_token_ids"])
def test_ids_outside_the_vocabulary_are_refused(translate, field):
    assert "400" in refused(translate, field, "invalid_value", **{field: [1, 400]})


def test_min_tokens_above_max_tokens_are_refused(translate):
    refused(translate, "min_tokens", "invalid_parameter_combination", min_tokens=11)


def test_prompt_logprobs(translate):
    assert translate(echo_logprobs=3).prompt_logprobs == 3
    assert translate(echo_logprobs=3, prompt_logprobs=5).prompt_logprobs == 5
    assert translate(echo_logprobs=5, prompt_logprobs=0).prompt_logprobs == 5
    refused(translate, "prompt_logprobs", "unsupported_parameter", prompt_logprobs=-1)
    refused(
        translate,
        "prompt_logprobs",
        "invalid_parameter_combination",
        prompt_logprobs=1,
        stream=True,
    )


def test_bad_words_apply_at_the_start_and_after_a_space(translate, tokenizer):
    words = translate(bad_words=["fox"]).bad_words_ids
    expected = [tokenizer.encode(text, add_special_tokens=False) for text in (" fox", "fox")]
    assert sorted(words) == sorted(map(tuple, expected))


@pytest.mark.parametrize(
    ("num_prompt", "wanted", "granted"),
    [(10, None, 90), (10, 90, 90), (10, 5, 5), (99, None, 1), (100, 0, 0), (10, 0, 0)],
)
def test_answer_length_within_the_context(info, num_prompt, wanted, granted):
    assert answer_length([1] * num_prompt, wanted, info(), param="prompt") == granted


@pytest.mark.parametrize(
    ("num_prompt", "wanted", "shown"),
    [(100, None, "100"), (100, 1, "100"), (101, 0, "101"), (5000, None, "5000"), (10, 91, "91")],
)
def test_an_error_beyond_the_context_names_both_numbers(info, num_prompt, wanted, shown):
    with pytest.raises(ContextLengthExceeded) as caught:
        answer_length([1] * num_prompt, wanted, info(), param="messages")
    assert caught.value.param == "messages"
    assert caught.value.code == "context_length_exceeded"
    assert "100 tokens" in caught.value.message
    assert shown in caught.value.message


def test_an_answer_beyond_the_context_is_shortened_if_the_operator_says_so(info):
    for num_prompt, wanted, granted in ((10, 2**62, 90), (10, 91, 90), (10, 90, 90), (99, 5, 1)):
        length = answer_length([1] * num_prompt, wanted, info(), param="prompt", is_clamped=True)
        assert length == granted
    with pytest.raises(ContextLengthExceeded):
        answer_length([1] * 100, 5, info(), param="prompt", is_clamped=True)


def test_a_token_id_that_the_model_does_not_have_is_refused(info):
    facts = info(num_token_ids=300)
    assert answer_length([5, 299], 1, facts, param="prompt") == 1
    with pytest.raises(InvalidRequest, match="ids are below 300") as caught:
        answer_length([5, 300, 2], 1, facts, param="messages")
    assert caught.value.param == "messages"


IMPOSSIBLE = [
    {"allowed_token_ids": [2], "min_tokens": 1},
    {"allowed_token_ids": [2, 5], "min_tokens": 1, "stop_token_ids": [5, 6]},
    {"allowed_token_ids": [5], "min_tokens": 1, "stop_token_ids": [5], "ignore_eos": True},
]


@pytest.mark.parametrize("fields", IMPOSSIBLE)
def test_a_request_without_a_token_to_sample_is_refused(translate, fields):
    refused(translate, "allowed_token_ids", "invalid_parameter_combination", **fields)
    assert translate(**(fields | {"min_tokens": 0}))
    assert translate(**(fields | {"allowed_token_ids": [2, 5, 7]}))
    assert translate(allowed_token_ids=[2], min_tokens=1, ignore_eos=True)


def test_bad_words_are_short(translate):
    message = refused(translate, "bad_words", "string_above_max_length", bad_words=["\x01" * 200])
    assert "has 200 tokens; the limit is 64" in message or "has 201 tokens" in message


def test_allowed_tokens_are_listed_once(translate):
    ids = translate(allowed_token_ids=[7, 5, 7] * 300_000).allowed_token_ids
    assert sorted(ids) == [5, 7]


@pytest.mark.parametrize("words", [["a"], ["aa"], ["a", "aaa"]])
def test_bad_words_must_leave_an_allowed_token(translate, tokenizer, words):
    (a,) = tokenizer.encode("a", add_special_tokens=False)
    (b,) = tokenizer.encode("b", add_special_tokens=False)
    refused(
        translate,
        "allowed_token_ids",
        "invalid_parameter_combination",
        allowed_token_ids=[a],
        bad_words=words,
    )
    assert translate(allowed_token_ids=[a, b], bad_words=words)
    assert translate(allowed_token_ids=[a], bad_words=["ab"])


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("allowed_token_ids", {"allowed_token_ids": [1, 2]}),
        ("bad_words", {"bad_words": ["a"]}),
        ("stop_token_ids", {"stop_token_ids": [1], "min_tokens": 1}),
    ],
)
def test_fields_that_could_exclude_the_grammar_s_only_token_are_refused(translate, name, fields):
    in_text = structural_tags([("<f>", {}, "</f>")], ["<f>"])
    refused(translate, name, "invalid_parameter_combination", grammar=in_text, **fields)
    assert translate(**fields)
    assert translate(grammar=in_text, stop_token_ids=[1], logit_bias={"1": -100})
