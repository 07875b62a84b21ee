"""The context of an engine comes from the configuration, the operator, or both."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from transformers import BertConfig, MambaConfig, WhisperConfig

from core.contract.config import EngineConfig
from core.contract.errors import ModelLoadError
from core.load.loaded_model import LoadedModel, context_length
from core.module.facts import describe
from core.run.keys_per_row import keys_per_row
from core.run.limits import Limits
from tests.support.checkpoints import tiny_model


def loaded(max_model_len: int | None) -> LoadedModel:
    model = describe(tiny_model("llama"), torch.device("cpu"))
    return dataclasses.replace(model, max_model_len=max_model_len)


@pytest.mark.parametrize(
    ("config", "length"),
    [
        (BertConfig(max_position_embeddings=77), 77),
        (WhisperConfig(max_target_positions=88), 88),
        (MambaConfig(), None),
    ],
    ids=["max_position_embeddings", "max_target_positions", "none"],
)
def test_the_configuration_says_how_long(config: object, length: int | None) -> None:
    assert context_length(config) == length


def test_the_operator_says_what_the_configuration_does_not() -> None:
    assert Limits.of(loaded(None), EngineConfig(max_model_len=99)).max_model_len == 99
    with pytest.raises(ModelLoadError, match=r"LlamaConfig does not say.*give --max-model-len"):
        Limits.of(loaded(None), EngineConfig())


def test_the_sizes_say_what_attention_of_prompts_costs() -> None:
    model = loaded(100)
    config: Any = model.module.config
    assert Limits.of(model, EngineConfig()).keys_per_row == keys_per_row(config) < math.inf


def test_the_operator_may_only_shorten_what_is_known() -> None:
    assert Limits.of(loaded(100), EngineConfig()).max_model_len == 100
    assert Limits.of(loaded(100), EngineConfig(max_model_len=50)).max_model_len == 50
    with pytest.raises(ModelLoadError, match="--max-model-len 101 is more than the model's 100"):
        Limits.of(loaded(100), EngineConfig(max_model_len=101))
