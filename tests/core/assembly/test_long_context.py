"""A context of 32,000 tokens: the tokens of ``generate``, and the same bits on cached prefixes."""

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig, Qwen3Config

from core.assembly.build import load_engine
from core.contract.config import EngineConfig, ModelConfig
from core.contract.messages import EngineRequest, StepOutput
from core.engine.engine import Engine
from core.kernels.cpu.library import kernels
from tests.support.checkpoints import DECODER, VOCAB_SIZE, random_model
from tests.support.tiny_engine import request, run
from tests.support.tokenizers import byte_level

pytestmark = pytest.mark.slow

NUM_TOKENS = 32_000
NUM_SHARED = NUM_TOKENS - 40
NUM_NEW = 12


@cache
def sharp_model() -> Any:
    """A tiny model whose queries choose few of the keys, wherever they are."""
    sizes = {"num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 2}
    config = Qwen3Config(**DECODER | sizes, head_dim=16)
    config.max_position_embeddings = 40_960
    model = random_model(config)
    for layer in model.model.layers:
        layer.self_attn.q_norm.weight.fill_(4.0)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sharp")
    sharp_model().save_pretrained(folder)
    byte_level(VOCAB_SIZE).save_pretrained(folder)
    return folder


def engine(folder: Path, **limits: object) -> Engine:
    model = ModelConfig(model=str(folder), device="cpu", dtype="float32")
    sizes = {"kv_cache_memory": 16 << 20, "max_num_seqs": 4, **limits}
    return load_engine(model, EngineConfig(**sizes)).engine


def subject(name: str) -> EngineRequest:
    """Requests of all names have the first NUM_SHARED tokens in common."""
    shared, own = random.Random(0), random.Random(name)
    prompt = [shared.randrange(3, VOCAB_SIZE - 1) for _ in range(NUM_SHARED)]
    prompt += [own.randrange(3, VOCAB_SIZE - 1) for _ in range(NUM_TOKENS - NUM_SHARED)]
    return request(name, prompt, NUM_NEW, logprobs=1)


def answer(outputs: list[StepOutput]) -> list[tuple[int, float]]:
    """The tokens with their log-probabilities."""
    return [(token.token_id, token.logprob) for output in outputs for token in output.logprobs]


def test_the_tokens_are_those_of_generate(folder: Path) -> None:
    asked = subject("a")
    found = answer(run(engine(folder), [asked])["a"])
    model = sharp_model()
    model.set_attn_implementation("sdpa")  # the eager one would hold all scores of a head
    options = GenerationConfig(
        max_new_tokens=NUM_NEW,
        do_sample=False,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    ids = torch.tensor([asked.prompt_token_ids])
    made = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=options)
    tokens = made.sequences[0, NUM_TOKENS:].tolist()
    assert [token for token, _ in found] == tokens
    logprobs = torch.stack(made.logits, dim=1)[0].log_softmax(-1)
    expected = [float(logprobs[i, token]) for i, token in enumerate(tokens)]
    assert [logprob for _, logprob in found] == pytest.approx(expected, abs=1e-3)


@pytest.mark.skipif(kernels() is None, reason="torch's own kernels promise no bits")
def test_a_cached_prefix_has_the_bits_of_a_fresh_one(folder: Path) -> None:
    warm = engine(folder)
    first = answer(run(warm, [subject("a")])["a"])
    outputs = run(warm, [subject(name) for name in "abc"])
    for name in "abc":
        assert outputs[name][-1].num_cached_tokens >= NUM_SHARED - 16
    assert answer(outputs["a"]) == first
    fresh = engine(folder, enable_prefix_caching=False)
    assert answer(outputs["b"]) == answer(run(fresh, [subject("b")])["b"])
