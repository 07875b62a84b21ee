"""AttentionHook describes the attention of a model it supports and refuses any other by name."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    DiffLlamaConfig,
    MambaConfig,
    PretrainedConfig,
)

from core.contract.errors import ModelLoadError
from core.hook.hook import AttentionHook
from tests.support.checkpoints import CONFIGS, tiny_model

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_a_supported_family_is_described_layer_by_layer(family: str) -> None:
    model = tiny_model(family)
    hook = AttentionHook(model)
    assert len(hook.layers) == model.config.num_hidden_layers
    windows = [layer.sliding_window for layer in hook.layers]
    expected = {"mistral": [24] * 4, "gemma3": [16, None, 16, None]}
    assert windows == expected.get(family, [None] * 4)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=2), "interface|packed"),
        (
            MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, state_size=4),
            "interface|packed|outside of attention",
        ),
    ],
    ids=["own attention", "no attention"],
)
def test_an_unsupported_model_is_refused_with_the_reason(
    config: PretrainedConfig, reason: str
) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    with pytest.raises(
        ModelLoadError, match=f"{type(model).__name__} cannot be served.*({reason})"
    ):
        AttentionHook(model)


def test_a_module_that_attends_twice_has_two_layers_even_after_a_failed_pass() -> None:
    config = DiffLlamaConfig(**SMALL | {"num_attention_heads": 4, "num_key_value_heads": 2})
    model = AutoModelForCausalLM.from_config(config).eval()
    hook = AttentionHook(model)
    assert len(hook.layers) == 4
    assert len(set(hook.modules)) == 2
    seen: list[int] = []

    def attend(query, _key, value, layer):
        seen.append(layer)
        if len(seen) == 3:
            raise RuntimeError
        return query.new_zeros(*query.shape[:2], value.shape[2])

    hook.install(attend)
    ids = torch.arange(3)[None]
    with pytest.raises(RuntimeError):
        model(input_ids=ids, position_ids=ids, use_cache=False)
    model(input_ids=ids, position_ids=ids, use_cache=False)
    hook.uninstall()
    assert seen == [0, 1, 2, 0, 1, 2, 3]


def test_another_function_takes_the_place_of_the_one_before() -> None:
    config = DiffLlamaConfig(**SMALL | {"num_attention_heads": 4, "num_key_value_heads": 2})
    model = AutoModelForCausalLM.from_config(config).eval()
    hook = AttentionHook(model)
    for _ in range(3):  # as the captures of graphs do
        hook.install(lambda query, _key, value, _layer: query.new_zeros(0))
    assert len(model._forward_pre_hooks) == 1
    hook.uninstall()
    assert not model._forward_pre_hooks
