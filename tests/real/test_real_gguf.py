"""Real GGUF files, served from their own blocks, beside their values in float32.

``make test-real`` runs these; other targets do not.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks import resident
from core.assembly.build import load_engine
from core.contract.config import ModelConfig
from core.module.loader import load_model
from tests.real.fetch import PACKAGES, Unavailable, fetched
from tests.real.test_real_models import LIMITS, PASSAGE, PROMPTS, _logprobs
from tests.support.tiny_engine import greedy, run_prompts

pytestmark = pytest.mark.real

LONG_ENOUGH = 24


@pytest.fixture(scope="module", params=PACKAGES)
def name(request: pytest.FixtureRequest) -> str:
    try:
        fetched(f"{request.param}.gguf")
        fetched(request.param)
    except Unavailable as error:
        pytest.skip(f"{request.param} cannot be fetched: {error}")
    return str(request.param)


def config(name: str, dtype: Any = "auto") -> ModelConfig:
    return ModelConfig(model=str(fetched(f"{name}.gguf")), device="cpu", dtype=dtype)


def test_values_are_those_that_transformers_reads(name: str):
    ours = dict(load_model(config(name, "float32")).module.named_parameters())
    model = AutoModelForCausalLM.from_pretrained(fetched(name), dtype=torch.bfloat16)
    theirs = dict(model.named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key].bfloat16(), theirs[key]) for key in theirs)


def test_a_server_holds_at_most_1_3_times_the_file(name: str, record_property: Any):
    """Beyond the built-in model's server: weights, tokenizer and workspaces."""
    file = fetched(f"{name}.gguf")
    found, base = resident.measure(str(file)), resident.measure(None)
    ratio = resident.ratio(found, base, file.stat().st_size)
    record_property("ratio", ratio)
    print(name, f"{ratio:.2f} of the file")
    assert ratio <= 1.3


def test_tokens_are_those_of_transformers_but_for_digits(name: str):
    """transformers does not know SmolLM's pre-tokenizer, which splits numbers into digits."""
    tokenizer = load_engine(config(name), LIMITS).tokenizer
    reference = AutoTokenizer.from_pretrained(fetched(name))
    for line in [*PASSAGE.splitlines(), *PROMPTS]:
        if not any(character.isdigit() for character in line):
            assert tokenizer.encode(line, add_special_tokens=True) == reference(line).input_ids


def test_distance_from_the_values_in_float32(name: str, record_property: Any):
    loaded = load_engine(config(name), LIMITS)
    prompt = loaded.tokenizer.encode(PASSAGE, add_special_tokens=True)
    model = load_model(config(name, "float32")).module
    with torch.inference_mode():
        reference = model(torch.tensor([prompt])).logits[0].double().log_softmax(-1)
    found = _logprobs(loaded.engine, prompt)
    kl = (reference.exp() * (reference - found)).sum(-1).mean().item()
    share = (reference.argmax(-1) == found.argmax(-1)).double().mean().item()
    next_ids = torch.tensor(prompt[1:])[:, None]
    nll = [-x[:-1].gather(1, next_ids).mean().item() for x in (reference, found)]
    ratio = torch.tensor(nll[1] - nll[0]).exp().item()
    record_property("distance", (kl, share, ratio))
    print(name, f"KL {kl:.5f}, equal best tokens {share:.3f}, perplexity x {ratio:.4f}")
    assert kl <= 1e-2
    assert share >= 0.90
    assert abs(ratio - 1) <= 0.01


def test_greedy_text_agrees_with_the_values_in_float32(name: str, record_property: Any):
    loaded = load_engine(config(name), LIMITS)
    model = load_model(config(name, "float32")).module
    prompts = [loaded.tokenizer.encode(text, add_special_tokens=True) for text in PROMPTS]
    answers = run_prompts(loaded.engine, prompts, LONG_ENOUGH)
    equal = 0
    for prompt, answer in zip(prompts, answers, strict=True):
        model.generation_config.eos_token_id = None
        expected = greedy(model, prompt, LONG_ENOUGH)
        equal += next(
            (i for i, (a, b) in enumerate(zip(answer, expected, strict=False)) if a != b),
            LONG_ENOUGH,
        )
    share = equal / (LONG_ENOUGH * len(prompts))
    record_property("share", share)
    print(name, f"share of greedy tokens before the first difference {share:.3f}")
    assert share >= 0.4
