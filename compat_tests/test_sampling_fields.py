"""C-032 to C-045: the fields that choose tokens."""

from collections import Counter

import pytest

from compat_tests.support.api import CHAT, COMPLETIONS, Api, in_threads

STORY = "Once upon a time"

LOOPS = ("la la la la la la la la", "1, 1, 1, 1, 1, 1,", "The sky is", STORY)


def long(api: Api, **fields: object) -> str:
    """The text of 40 tokens, whatever the model thinks of its end."""
    return api.text(STORY, **({"max_tokens": 40, "ignore_eos": True} | fields))


def test_c032_greedy_is_repeatable(api: Api) -> None:
    greedy = long(api)
    assert long(api) == greedy
    assert long(api, top_p=0.1, seed=99) == greedy
    assert long(api, top_k=50, min_p=0.5, seed=1) == greedy
    assert api.chat_text(max_tokens=20) == api.chat_text(max_tokens=20, top_p=0.1, seed=4)


def test_c032_almost_zero_is_greedy(api: Api) -> None:
    assert long(api, temperature=1e-6, seed=1) == long(api)


def test_c033_seeds(api: Api) -> None:
    hot = {"temperature": 1.5}
    assert long(api, seed=7, **hot) == long(api, seed=7, **hot)
    assert len({long(api, seed=seed, **hot) for seed in range(10)}) >= 2


def test_c033_without_a_seed_texts_differ(api: Api) -> None:
    assert len({long(api, temperature=2) for _ in range(3)}) >= 2


def test_c034_n_3_with_a_seed(api: Api) -> None:
    fields = {"n": 3, "seed": 11, "temperature": 1, "max_tokens": 48, "ignore_eos": True}
    texts = [choice["text"] for choice in api.complete(STORY, **fields)["choices"]]
    assert [choice["text"] for choice in api.complete(STORY, **fields)["choices"]] == texts
    assert len(set(texts)) > 1
    assert api.text(STORY, **(fields | {"n": 1})) == texts[0]


def test_c035_n_2_greedy(api: Api) -> None:
    first, second = api.chat(n=2, max_tokens=16)["choices"]
    assert first["message"] == second["message"]
    assert first["finish_reason"] == second["finish_reason"]


@pytest.mark.parametrize("value", [-0.1, "hot", "1", 2.1, True, 1e308, -1e-9, [1], {}])
def test_c036_temperature_out_of_range(api: Api, value: object) -> None:
    assert api.refused_chat("temperature", temperature=value)["param"] == "temperature"
    assert api.refused_completion("temperature", temperature=value)["param"] == "temperature"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_p", 1.1),
        ("top_p", -0.1),
        ("top_p", "1"),
        ("presence_penalty", 2.1),
        ("presence_penalty", -2.1),
        ("frequency_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("frequency_penalty", False),
        ("min_p", 1.1),
        ("min_p", -0.1),
        ("top_k", -2),
        ("top_k", 1.5),
        ("top_k", 2**40),
    ],
)
def test_c037_out_of_range(api: Api, name: str, value: object) -> None:
    assert api.refused_chat(name, **{name: value})["param"] == name
    assert api.refused_completion(name, **{name: value})["param"] == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_p", 0),
        ("top_p", 1),
        ("presence_penalty", 2),
        ("presence_penalty", -2),
        ("frequency_penalty", 2),
        ("frequency_penalty", -2),
        ("top_k", 0),
        ("top_k", -1),
        ("min_p", 0),
        ("min_p", 1),
    ],
)
def test_c037_limits_are_in_range(api: Api, name: str, value: float) -> None:
    assert api.chat(max_tokens=4, temperature=1, **{name: value})["choices"]


def test_c037_top_p_0_is_the_best_token_only(api: Api) -> None:
    assert long(api, top_p=0, temperature=1, seed=3) == long(api)


def test_c038_frequency_penalty_lowers_the_repeat_count(api: Api, tokenizer) -> None:
    def repeats(prompt: str, **fields: object) -> int:
        text = api.text(prompt, max_tokens=64, ignore_eos=True, **fields)
        counts = Counter(tokenizer.encode(text, add_special_tokens=False).ids)
        return max(counts.values())

    most, prompt = max((repeats(prompt), prompt) for prompt in LOOPS)
    assert most > 4
    assert repeats(prompt, frequency_penalty=2) < most
    assert repeats(prompt, presence_penalty=2) <= most
    assert repeats(prompt, repetition_penalty=2) < most


def test_c038_penalties_count_generated_tokens_only(api: Api) -> None:
    """The first token cannot be changed by a penalty on what was generated: nothing was."""
    for prompt in LOOPS:
        first = api.greedy_ids(prompt, 1)
        body = api.complete(
            prompt,
            max_tokens=1,
            ignore_eos=True,
            frequency_penalty=2,
            presence_penalty=2,
            return_token_ids=True,
        )
        assert body["choices"][0]["token_ids"] == first


def test_c039_logit_bias(api: Api) -> None:
    greedy = api.greedy_ids(STORY, 1)[0]
    other = 77 if greedy != 77 else 78

    def first(bias: dict[str, float], **fields: object) -> int:
        body = api.complete(
            STORY,
            max_tokens=1,
            ignore_eos=True,
            logit_bias=bias,
            return_token_ids=True,
            **fields,
        )
        return body["choices"][0]["token_ids"][0]

    assert first({str(greedy): -100}) != greedy
    assert first({str(other): 100}) == other
    assert first({str(other): 100}, temperature=1, seed=1) == other
    assert first({}) == greedy
    assert first({str(other): 0}) == greedy


def test_c039_logit_bias_in_chat(api: Api, tokenizer) -> None:
    (token,) = tokenizer.encode("X", add_special_tokens=False).ids
    assert api.chat_text(logit_bias={str(token): 100}, max_tokens=5) == "XXXXX"


@pytest.mark.parametrize(
    "bias",
    [
        {"abc": 1},
        {"1.5": 1},
        {"": 1},
        {"-1": 1},
        {"99999999": 1},
        {"5": 101},
        {"5": -101},
        {"5": "1"},
        {"5": None},
        [5],
        "5",
        {str(i): 0 for i in range(100_000)},
        {"9" * 100: 1},
    ],
)
def test_c040_bad_logit_bias(api: Api, bias: object) -> None:
    error = api.refused_chat("logit_bias", logit_bias=bias)
    assert error["param"].startswith("logit_bias")
    api.refused_completion("logit_bias", logit_bias=bias)


@pytest.mark.parametrize("seed", [0, -1, 2**63 - 1, -(2**63)])
def test_c041_seeds_in_range(api: Api, seed: int) -> None:
    assert api.chat(seed=seed, temperature=1, max_tokens=4)["choices"]


@pytest.mark.parametrize("seed", [1.5, 2**63, -(2**63) - 1, "1", True])
def test_c041_bad_seeds(api: Api, seed: object) -> None:
    assert api.refused_chat("seed", seed=seed)["param"] == "seed"


def test_c041_seed_0_is_a_seed(api: Api) -> None:
    hot = {"temperature": 1.5, "seed": 0}
    assert long(api, **hot) == long(api, **hot)


def test_c041_large_seeds_are_told_apart(api: Api) -> None:
    texts = {long(api, temperature=1.5, seed=2**63 - 1 - i) for i in range(4)}
    assert len(texts) > 1


def test_c042_top_k_1_and_min_p_1_are_greedy(api: Api) -> None:
    greedy = long(api)
    assert long(api, temperature=1, top_k=1) == greedy
    assert long(api, temperature=1, min_p=1) == greedy
    assert long(api, repetition_penalty=1) == greedy


def test_c042_top_k_limits_the_choice(api: Api) -> None:
    best = api.complete(STORY, max_tokens=1, logprobs=3)["choices"][0]["logprobs"]
    three = set(best["top_logprobs"][0])
    seen = {
        api.text(STORY, max_tokens=1, ignore_eos=True, temperature=2, top_k=3, seed=seed)
        for seed in range(12)
    }
    assert seen <= three


@pytest.mark.parametrize("value", [0, -1, -0.5, "1"])
def test_c042_bad_repetition_penalty(api: Api, value: object) -> None:
    error = api.refused_chat("repetition_penalty", repetition_penalty=value)
    assert error["param"] == "repetition_penalty"


def test_c043_ignore_eos_gives_the_exact_length(api: Api) -> None:
    for body in (
        api.chat(max_tokens=64, ignore_eos=True),
        api.complete(STORY, max_tokens=64, ignore_eos=True),
    ):
        assert body["usage"]["completion_tokens"] == 64
        assert body["choices"][0]["finish_reason"] == "length"


def test_c044_min_tokens(api: Api) -> None:
    prompt = api.ending_prompt()
    at_once = api.complete(prompt, max_tokens=20)
    assert at_once["usage"]["completion_tokens"] == 1
    assert at_once["choices"][0]["finish_reason"] == "stop"
    assert at_once["choices"][0]["text"] == ""
    later = api.complete(prompt, max_tokens=20, min_tokens=10)
    assert 10 <= later["usage"]["completion_tokens"] <= 20


def test_c044_min_tokens_holds_for_stop_strings(api: Api) -> None:
    text = long(api)
    body = api.complete(STORY, max_tokens=40, min_tokens=40, ignore_eos=True, stop=text[3:5])
    assert body["usage"]["completion_tokens"] == 40


def test_c044_min_tokens_above_max_tokens(api: Api) -> None:
    assert api.refused_chat("min_tokens", min_tokens=9, max_tokens=8)["param"] == "min_tokens"
    assert api.refused_completion("min_tokens", min_tokens=17)["param"] == "min_tokens"


def test_c045_stop_token_ids(api: Api) -> None:
    ids = api.greedy_ids(STORY, 8)
    second = ids[1]
    end = ids.index(second)
    choice = api.complete(STORY, max_tokens=8, stop_token_ids=[second], return_token_ids=True)[
        "choices"
    ][0]
    assert choice["finish_reason"] == "stop"
    assert choice["token_ids"] == ids[: end + 1]
    assert choice["stop_reason"] == second


@pytest.mark.parametrize("value", [[-1], ["a"], 5, [99_999_999], list(range(1000))])
def test_c045_bad_stop_token_ids(api: Api, value: object) -> None:
    error = api.refused_chat("stop_token_ids", stop_token_ids=value)
    assert error["param"].startswith("stop_token_ids")


def test_allowed_token_ids(api: Api) -> None:
    allowed = api.tokenize("a b c", add_special_tokens=False)
    body = api.complete(
        STORY,
        max_tokens=20,
        temperature=1,
        ignore_eos=True,
        allowed_token_ids=allowed,
        return_token_ids=True,
    )
    assert set(body["choices"][0]["token_ids"]) <= set(allowed)
    for bad in ([-1], [99_999_999], "a", [""]):
        api.refused_completion("allowed_token_ids", allowed_token_ids=bad)


def test_bad_words(api: Api, tokenizer) -> None:
    """What is banned is the word's tokens, with and without a blank before it, as in vLLM."""

    def spelled(word: str) -> list[list[int]]:
        forms = (word, f" {word}")
        return [tokenizer.encode(form, add_special_tokens=False).ids for form in forms]

    def has(ids: list[int], word: str) -> bool:
        return any(
            ids[start : start + len(form)] == form
            for form in spelled(word)
            for start in range(len(ids))
        )

    text, ids = long(api), api.greedy_ids(STORY, 40)
    word = max((word for word in text.split() if word.isalpha() and has(ids, word)), key=len)
    choice = api.complete(
        STORY, max_tokens=40, ignore_eos=True, bad_words=[word], return_token_ids=True
    )["choices"][0]
    assert not has(choice["token_ids"], word)
    assert choice["text"] != text
    for bad in ("word", [1]):
        api.refused_completion("bad_words", bad_words=bad)


def test_skip_special_tokens(api: Api, tokenizer, eos_token_ids: set[int]) -> None:
    end = min(eos_token_ids - {0})
    shown = tokenizer.decode([end], skip_special_tokens=False)
    assert shown
    forced = {"logit_bias": {str(end): 100}, "max_tokens": 3, "ignore_eos": True}
    assert api.text(STORY, **forced) == ""
    assert api.text(STORY, skip_special_tokens=False, **forced) == shown * 3


def test_each_row_of_a_batch_has_its_own_fields(api: Api) -> None:
    """C-128 in the small: bias on one request must not touch its neighbours."""
    greedy = long(api)
    variants: list[dict[str, object]] = [
        {},
        {"logit_bias": {"77": 100}},
        {"frequency_penalty": 2},
        {"allowed_token_ids": [80, 81]},
        {"temperature": 1, "seed": 5},
        {"repetition_penalty": 1.7},
        {"min_tokens": 30, "stop": greedy[4:6]},
        {"temperature": 1.2, "top_k": 5, "seed": 6},
    ]
    alone = [long(api, **fields) for fields in variants]
    together = in_threads(lambda fields: long(api, **fields), variants * 3)
    assert together == alone * 3


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("use_beam_search", True),
        ("length_penalty", 1.5),
        ("logits_processors", ["x"]),
        ("custom_logit_processor", "x"),
        ("lora_path", "x"),
        ("stop_regex", "a+"),
        ("mirostat", 2),
        ("repeat_penalty", 1.2),
        ("typical_p", 0.5),
        ("dry_multiplier", 0.8),
        ("xtc_probability", 0.5),
        ("n_predict", 5),
        ("n_probs", 5),
    ],
)
def test_c094_what_would_change_the_output_is_obeyed_or_refused(
    api: Api, path: str, name: str, value: object
) -> None:
    make = api.chat_body if path == CHAT else api.completion_body
    assert api.refused(path, make("Hello!", **{name: value}), name)["param"] == name


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/generate"])
def test_c094_priority_is_accepted_within_its_limits(api: Api, path: str) -> None:
    def body(value: object) -> dict[str, object]:
        if path == "/generate":
            return {"prompt": STORY, "max_new_tokens": 2, "priority": value}
        make = api.chat_body if path == CHAT else api.completion_body
        return make("Hello!", max_tokens=2, priority=value)

    for value in (-1000, -1, 0, 1, 1000, None):
        assert api.post(path, body(value)).status == 200
    for value in (-1001, 1001, 2**40, 0.5, "1", True):
        assert api.refused(path, body(value), "priority")["param"] == "priority"


def test_c094_a_thinking_budget_needs_a_chat(api: Api) -> None:
    api.refused_completion("thinking_token_budget", thinking_token_budget=5)
