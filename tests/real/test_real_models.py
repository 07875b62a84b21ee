"""Real weights: token for token what ``generate`` gives, and how far smaller types are from it.

``make test-real`` runs these; other targets do not. They download about 350 MB once.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from core.assembly.build import load_engine
from core.batch.logits import Logits
from core.batch.model_input import ModelInput
from core.contract.config import EngineConfig, KVCacheDType, ModelConfig
from core.engine.engine import Engine
from core.run.forward import EagerForward
from tests.real.fetch import PACKAGES, ROOT, Unavailable, fetched
from tests.support.tiny_engine import request, run, token_ids

pytestmark = pytest.mark.real

NUM_TOKENS = 24

LIMITS = EngineConfig(
    max_model_len=1024,
    max_num_seqs=8,
    max_num_batched_tokens=128,
    prefill_chunk_size=48,
    kv_cache_memory=512 << 20,
)
"""Chunks are small, so that prompts are computed beside streams."""

PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a village between two rivers, there lived",
    "Water boils at 100 degrees because",
    "1, 1, 2, 3, 5, 8, 13,",
    "Dear Sir or Madam,\n\nI am writing to",
)

PASSAGE = """\
The lighthouse had been without a keeper for eleven years when the council decided to sell it. Three
people came to see it on the first day. A painter wanted the light, which falls from all sides at
once and has no colour before noon. A biologist wanted the cliffs below, where guillemots breed in
such numbers that the rock looks white from the sea. The third was an old man who had served on
the ship that ran aground there in 1962, and he wanted only to climb the stairs and look down.

There are 214 steps. At the top the lamp still turns if it is pushed, because whoever cleaned the
bearings last did it well. The lens is as tall as a child and weighs two tonnes; it floats in a bath
of mercury, so a finger is enough to move it. In clear weather its beam was seen from 24 miles, and
in fog from less than one, which is why a horn was added in 1931. The horn broke first. Nobody in
the town missed it.
"""


@pytest.fixture(scope="module", params=PACKAGES)
def folder(request: pytest.FixtureRequest) -> str:
    try:
        return str(fetched(request.param))
    except Unavailable as error:
        pytest.skip(f"{request.param} cannot be fetched: {error}")


@functools.lru_cache(maxsize=1)
def prompts_of(folder: str) -> tuple[tuple[int, ...], ...]:
    """Short ones, and one that is longer than Gemma's window of 512 tokens."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    long = tokenizer((ROOT / "LICENSE").read_text()).input_ids[:600]
    return tuple(tuple(ids) for ids in [*(tokenizer(text).input_ids for text in PROMPTS), long])


@functools.lru_cache(maxsize=1)
def expected(folder: str) -> list[list[int]]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return [_generate(model, list(prompt)) for prompt in prompts_of(folder)]


def _generate(model: Any, prompt: list[int]) -> list[int]:
    ids = torch.tensor([prompt])
    generated = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=NUM_TOKENS,
        min_new_tokens=NUM_TOKENS,
        do_sample=False,
        temperature=None,
        top_p=None,
        top_k=None,
    )
    return generated[0, len(prompt) :].tolist()


@functools.lru_cache(maxsize=1)
def engine_of(
    folder: str, dtype: str, quantization: str = "none", cache: KVCacheDType = "auto"
) -> Engine:
    model = ModelConfig(model=folder, device="cpu", dtype=dtype, quantization=quantization)
    return load_engine(model, msgspec.structs.replace(LIMITS, kv_cache_dtype=cache)).engine


def _requests(folder: str) -> list[Any]:
    """Greedy ones; ``generate`` is kept from ending too, so the end tokens are excluded in both."""
    return [
        request(str(i), list(prompt), NUM_TOKENS, min_tokens=NUM_TOKENS, ignore_eos=False)
        for i, prompt in enumerate(prompts_of(folder))
    ]


def test_each_prompt_alone_gives_what_generate_gives(folder: str):
    engine = engine_of(folder, "float32")
    found = [token_ids(run(engine, [r])[r.request_id]) for r in _requests(folder)]
    assert found == expected(folder)


def test_all_prompts_together_give_what_generate_gives(folder: str):
    requests = _requests(folder)
    outputs = run(engine_of(folder, "float32"), requests)
    assert [token_ids(outputs[r.request_id]) for r in requests] == expected(folder)


class Recorder:
    """A forward pass that keeps the logits of every step."""

    def __init__(self, eager: EagerForward) -> None:
        self.eager = eager
        self.rows: list[torch.Tensor] = []

    def __call__(self, batch: ModelInput) -> Logits:
        logits = self.eager(replace(batch, wants_best=False, layout=None))
        self.rows.append(logits.values.double())  # a copy: the memory is written again
        return logits


@dataclass(frozen=True)
class Distance:
    """From the float32 model, over all tokens of a text: KL in nats, share of equal best tokens."""

    kl: float
    share: float


def _logprobs(engine: Engine, prompt: list[int]) -> torch.Tensor:
    """Of every position: [num_tokens, vocab_size]."""
    runner = engine._pipeline._runner
    forward, runner._forward = runner._forward, (recorder := Recorder(runner._forward))
    try:
        run(engine, [request("scored", prompt, 1, prompt_logprobs=0)])
    finally:
        runner._forward = forward
    return torch.cat(recorder.rows).log_softmax(-1)


@functools.lru_cache(maxsize=1)
def _reference(folder: str) -> tuple[list[int], torch.Tensor]:
    """The passage's tokens, and their log-probabilities by transformers in float32."""
    prompt = AutoTokenizer.from_pretrained(folder)(PASSAGE).input_ids
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        return prompt, model(torch.tensor([prompt])).logits[0].double().log_softmax(-1)


def distance(
    folder: str, dtype: str, quantization: str = "none", cache: KVCacheDType = "auto"
) -> Distance:
    prompt, reference = _reference(folder)
    found = _logprobs(engine_of(folder, dtype, quantization, cache), prompt)
    assert found.shape == reference.shape
    kl = (reference.exp() * (reference - found)).sum(-1).mean().item()
    share = (reference.argmax(-1) == found.argmax(-1)).float().mean().item()
    return Distance(kl, share)


@pytest.mark.parametrize(
    ("dtype", "quantization", "kl", "share"),
    [
        ("float32", "none", 1e-7, 1.0),
        ("bfloat16", "none", 5e-4, 0.97),
        ("bfloat16", "int8", 1e-2, 0.90),
        ("bfloat16", "int4", 1e-1, 0.75),
    ],
    ids=["float32", "bfloat16", "int8", "int4"],
)
def test_distance_from_the_reference(
    folder: str,
    dtype: str,
    quantization: str,
    kl: float,
    share: float,
    record_property: Any,
):
    found = distance(folder, dtype, quantization)
    record_property("distance", found)
    print(folder, dtype, quantization, found)
    assert found.kl <= kl
    assert found.share >= share


@pytest.mark.parametrize(
    ("dtype", "kl", "share"),
    [("float32", 1e-2, 0.90), ("bfloat16", 1e-2, 0.90)],
)
def test_distance_with_a_cache_of_int8(
    folder: str, dtype: str, kl: float, share: float, record_property: Any
):
    found = distance(folder, dtype, cache="int8")
    record_property("distance", found)
    print(folder, dtype, "int8 cache", found)
    assert found.kl <= kl
    assert found.share >= share
