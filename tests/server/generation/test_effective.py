"""The parameters of a request after defaults."""

import msgspec

from core.contract.grammar import Regex
from core.contract.params import SamplingParams, Thinking
from server.generation.job import Job, effective_parameters


def job(num_choices=1, **params):
    return Job(
        id="x",
        prompts=[[1, 2]],
        params=[SamplingParams(**({"max_tokens": 5} | params))],
        num_choices=num_choices,
        is_streamed=False,
        stream_interval=1,
        renderer=None,
        new_grammars=None,
        priority=3,
    )


def test_defaults_are_shown():
    found = effective_parameters(job(2))
    assert (found["n"], found["max_tokens"], found["temperature"]) == (2, 5, 1.0)
    assert found["seed"] is found["grammar"] is found["thinking"] is None
    assert (found["priority"], found["stop"], found["allowed_token_ids"]) == (3, 0, None)
    msgspec.json.encode(found)


def test_texts_and_tokens_are_counted():
    params = {
        "stop": ("a", "b"),
        "stop_token_ids": (7,),
        "logit_bias": {3: 1.0},
        "bad_words_ids": ((1, 2),),
        "allowed_token_ids": (1, 2, 3),
        "grammar": Regex("secret"),
        "thinking": Thinking(begin="<", end=">", end_token_ids=(9,), budget=4),
    }
    found = effective_parameters(job(**params))
    counts = [found[name] for name in ("stop", "stop_token_ids", "logit_bias", "bad_words_ids")]
    assert counts == [2, 1, 1, 1]
    assert (found["grammar"], found["thinking"], found["allowed_token_ids"]) == ("regex", 4, 3)
    msgspec.json.encode(found)
    assert "secret" not in str(found)
