"""Models whose layers have different sizes."""

from __future__ import annotations

from transformers import Gemma4TextConfig

from core.load.layer_configs import layer_configs, number
from tests.support.gguf_models import tiny_model as llama
from tests.zoo.check import check


def test_layers_that_are_alike_have_one_configuration():
    config = llama("llama").config
    assert layer_configs(config) == [config]


def test_layers_that_differ_have_one_each():
    config = Gemma4TextConfig(
        num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
        head_dim=16,
        global_head_dim=32,
    )
    assert [number(layer, "head_dim") for layer in layer_configs(config)] == [16, 32]


def test_a_model_of_such_layers_answers_as_generate_does():
    assert check("gemma4_text", {}).state == "exact"
