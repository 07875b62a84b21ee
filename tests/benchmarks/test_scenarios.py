"""Definitions and scaling of the scenarios."""

import pytest

from benchmarks.load import make_prompts
from benchmarks.scenarios import (
    CONTEXTS,
    DEFAULT,
    MIN_TOKENS,
    SAMPLED,
    STREAMS,
    WARM_UP,
    scenarios,
)


def test_requests_concurrency_and_tokens_of_each_scenario():
    found = scenarios(40960)
    assert set(DEFAULT) < set(found)
    sizes = {name: (s.num_requests, s.concurrency, s.max_tokens) for name, s in found.items()}
    assert sizes == {
        WARM_UP: (1, 1, 8),
        "s1": (4, 1, 128),
        "s2": (64, 64, 128),
        "s3-16": (32, 16, 128),
        "s3": (64, 32, 128),
        "s4": (32, 8, 32),
        "s4-unshared": (16, 8, 32),
        "s5": (8, 8, 256),
        "s2-sampled": (64, 64, 128),
        "prefill": (4, 1, 16),
        "long": (1, 1, 32),
        **{f"streams-{number}": (number, number, 64) for number in STREAMS},
        "context-8k": (9, 8, 64),
        "context-32k": (9, 8, 64),
    }
    assert found["s2"].interval == 0.02
    assert found["s5"].long_words == 900


@pytest.mark.parametrize(("context", "prefix"), [(1024, 700), (1088, 1024), (40960, 1024)])
def test_a_short_context_gets_the_short_prefix(context, prefix):
    assert scenarios(context)["s4"].prefix_words == prefix


@pytest.mark.parametrize("context", [1024, 40960])
def test_every_request_fits_the_context_and_the_room_of_its_server(context):
    for s in scenarios(context).values():
        assert s.prefix_words + s.prompt_words[1] + s.max_tokens <= s.num_tokens
        assert s.long_words + s.long_max_tokens <= s.num_tokens <= min(context, s.slot_context)
        assert s.concurrency <= s.slots


def test_a_model_without_the_context_has_no_long_prompt():
    assert scenarios(40960)["long"].prompt_words == (6000, 6000)
    assert scenarios(6031).keys() == scenarios(40960).keys() - {"long", *CONTEXTS}


@pytest.mark.parametrize(("name", "words"), CONTEXTS.items())
def test_streams_of_a_long_context_have_the_prefix_of_the_first_request(name, words):
    scenario = scenarios(words + 64)[name]
    assert scenario.num_streams == scenario.concurrency == 8
    prompts, _ = make_prompts(scenario, "seed")
    assert {len(prompt.split()) for prompt in prompts} == {words}
    assert len({tuple(prompt.split()[: words - 32]) for prompt in prompts}) == 1
    assert len(set(prompts)) == 9
    assert name not in scenarios(words + 63)
    assert name not in scenarios(1024)


def test_one_load_draws_its_tokens():
    found = scenarios(1024)
    assert found["s2-sampled"].sampling == SAMPLED
    assert found["s2"].sampling == {"temperature": 0.0}
    assert [name for name, s in found.items() if s.is_sampled] == ["s2-sampled"]


def test_scaling_reduces_requests_before_tokens():
    s3 = scenarios(1024, 0.5)["s3"]
    assert (s3.num_requests, s3.concurrency, s3.max_tokens) == (32, 32, 128)
    s3 = scenarios(1024, 0.25)["s3"]
    assert (s3.num_requests, s3.concurrency, s3.max_tokens) == (32, 32, 64)


def test_scaling_keeps_the_requests_of_an_open_load():
    s2 = scenarios(1024, 0.25)["s2"]
    assert (s2.num_requests, s2.max_tokens) == (64, 32)


@pytest.mark.parametrize("scale", [0.001, 0.1, 1.0, 3.0])
def test_scaling_keeps_concurrency_and_prompts(scale):
    whole = scenarios(1024)
    for name, s in scenarios(1024, scale).items():
        assert s.concurrency == whole[name].concurrency <= s.num_requests
        assert min(MIN_TOKENS, whole[name].max_tokens) <= s.max_tokens <= whole[name].max_tokens
        assert s.prompt_words == whole[name].prompt_words
    assert scenarios(1024, scale)["s5"].max_tokens > 3 * whole["s5"].start_after


def test_prompts_have_the_lengths_of_the_scenario():
    for s in scenarios(1024).values():
        prompts, long_prompt = make_prompts(s, "seed")
        low, high = s.prompt_words
        assert len(prompts) == s.num_requests
        assert all(low <= len(p.split()) - s.prefix_words <= high for p in prompts)
        assert len(long_prompt.split()) == s.long_words


def test_prompts_share_a_prefix_only_where_the_scenario_does():
    found = scenarios(1024)
    shared, _ = make_prompts(found["s4"], "seed")
    assert len({tuple(p.split()[:700]) for p in shared}) == 1
    assert len(set(shared)) == len(shared)
    unshared, _ = make_prompts(found["s4-unshared"], "seed")
    assert len({tuple(p.split()[:700]) for p in unshared}) == len(unshared)


def test_the_seed_determines_the_prompts():
    s1 = scenarios(1024)["s1"]
    assert make_prompts(s1, "a") == make_prompts(s1, "a")
    assert not set(make_prompts(s1, "a")[0]) & set(make_prompts(s1, "b")[0])
