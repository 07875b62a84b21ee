"""What attention costs beside products, by the sizes of a model."""

from __future__ import annotations

import math

import pytest
from transformers import (
    Gemma4TextConfig,
    GPT2Config,
    MistralConfig,
    MixtralConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)

from core.run.keys_per_row import keys_per_row


def qwen3(**changes: object) -> Qwen3Config:
    sizes = {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "num_hidden_layers": 4,
    }
    return Qwen3Config(**sizes | changes)


def test_qwen3():
    """28 layers have 440 million elements, two operations each, and 229,376 for a key."""
    elements = 1024 * (2 * (16 + 8) * 128 + 3 * 3072)
    assert keys_per_row(qwen3()) == pytest.approx(2 / 3 * 2 * elements / (4 * 16 * 128))
    assert 2500 < keys_per_row(qwen3()) < 2600


def test_gpt2_has_two_matrices_of_four_times_the_width():
    assert keys_per_row(GPT2Config()) == pytest.approx(2 / 3 * 2 * 12 * 768 / 4)


def test_only_layers_that_attend_to_everything_count():
    kinds = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]
    assert keys_per_row(qwen3(layer_types=kinds)) == pytest.approx(4 * keys_per_row(qwen3()))
    assert keys_per_row(qwen3(layer_types=["sliding_attention"] * 4)) == math.inf


def test_layers_of_other_sizes_count_with_their_own():
    """Gemma 4's layers that attend to everything have wider heads."""
    config = Gemma4TextConfig(
        hidden_size=1024,
        intermediate_size=3072,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        global_head_dim=256,
        num_hidden_layers=4,
        layer_types=["sliding_attention"] * 3 + ["full_attention"],
    )
    elements = [1024 * (2 * (16 + 8) * size + 3 * 3072) for size in (128, 128, 128, 256)]
    assert keys_per_row(config) == pytest.approx(2 / 3 * 2 * sum(elements) / (4 * 16 * 256))


def test_a_window_of_all_layers_is_found_without_their_kinds():
    assert keys_per_row(MistralConfig(sliding_window=4096)) == math.inf
    assert keys_per_row(MistralConfig(sliding_window=None)) < math.inf


def test_experts_of_the_usual_size_count_as_often_as_a_token_uses_them():
    one = keys_per_row(MixtralConfig(num_experts_per_tok=1, sliding_window=None))
    two = keys_per_row(MixtralConfig(num_experts_per_tok=2, sliding_window=None))
    assert 1.5 * one < two < 2 * one


def test_of_experts_those_of_a_token_count():
    config = Qwen3MoeConfig(
        hidden_size=1024,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        num_experts_per_tok=4,
        moe_intermediate_size=768,
        num_hidden_layers=4,
    )
    assert keys_per_row(config) == pytest.approx(keys_per_row(qwen3()))


def test_a_model_without_the_usual_sizes():
    assert keys_per_row(object()) == math.inf
