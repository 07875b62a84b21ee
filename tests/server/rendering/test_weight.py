"""The weight of an output says whether the event loop renders it."""

import pytest

from core.contract.messages import SampledLogprob
from server.apis.openai.completions import CompletionRenderer
from server.generation.answer import HEAVY
from server.rendering.base import weight_of
from tests.support.engines import out

ENTRY = SampledLogprob(5, -0.1, tuple((i, -1.0) for i in range(20)))


@pytest.mark.parametrize(
    "output",
    [
        out(text="x"),
        out(token_ids=(1,), text="word", logprobs=(ENTRY,)),
        out(text="x" * 4000),
        out(prompt_logprobs=(ENTRY,) * 50),
    ],
)
def test_light_outputs(output):
    assert weight_of(output) <= HEAVY


@pytest.mark.parametrize(
    "output",
    [
        out(text="x" * 20_000),
        out(thinking="x" * 20_000),
        out(token_ids=tuple(range(20_000))),
        out(logprobs=(ENTRY,) * 200),
        out(prompt_logprobs=(SampledLogprob(1, None), *[ENTRY] * 100)),
    ],
)
def test_heavy_outputs(output):
    assert weight_of(output) > HEAVY


@pytest.mark.parametrize("wanted", [{"return_token_ids": True}, {"echoes": ["x" * 90_000]}])
def test_the_first_chunk_of_a_choice_contains_the_prompt(envelope, asked, wanted):
    made, options = envelope(asked([range(20_000)]), num_choices=1, **wanted)
    renderer = CompletionRenderer(made, num_best=1, **options)
    assert renderer.weight(0, out("x")) > HEAVY
    renderer.feed(0, out("id-0", "x"))
    assert renderer.weight(0, out("x")) <= HEAVY
