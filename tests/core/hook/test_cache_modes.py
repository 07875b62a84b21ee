"""Configurations that change what transformers' cache holds are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import CONFIG_MAPPING, LlamaConfig

from core.contract.errors import ModelLoadError
from core.hook import few_layers, recording
from core.hook.few_layers import FewLayers
from core.hook.hook import AttentionHook
from tests.support.checkpoints import DECODER, random_model
from tests.zoo.check import check, load
from tests.zoo.shrink import tiny_config, tiny_model

needs_dory = pytest.mark.skipif("dory" not in CONFIG_MAPPING, reason="an older transformers")

LOOPS: dict[str, Any] = {
    "num_hidden_layers": 6,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "n_input_layers": 2,
    "n_recurrent_layers": 2,
    "n_output_layers": 2,
    "n_recurrent_loops": 2,
}
LAST_LOOP = LOOPS | {"recurrent_kv_cache_mode": "last_loop"}


@needs_dory
def test_a_cache_of_each_loop_is_exact() -> None:
    assert check("dory", LOOPS).state == "exact"


@needs_dory
def test_a_cache_of_the_last_loop_is_refused_by_name() -> None:
    with pytest.raises(ModelLoadError, match="has recurrent_kv_cache_mode 'last_loop'"):
        load(tiny_model(tiny_config("dory", **LAST_LOOP)))


@needs_dory
@pytest.mark.parametrize("limit", [0, few_layers.MAX_PARAMETERS])
def test_it_is_refused_for_what_it_computes_too(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Of any size: layers in a loop are another kind than those before it."""
    monkeypatch.setattr(recording, "_CACHE_OF_EACH_CALL", "last_loop")
    monkeypatch.setattr(few_layers, "MAX_PARAMETERS", limit)
    with pytest.raises(ModelLoadError, match="own cache its results depend on where a prompt is"):
        load(tiny_model(tiny_config("dory", **LAST_LOOP)))


@needs_dory
def test_layers_in_a_loop_are_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_layers, "MAX_PARAMETERS", 0)
    model = tiny_model(tiny_config("dory", **LOOPS))
    hook = AttentionHook(model)
    assert FewLayers(model, hook.modules, hook.layers).count == 4


@pytest.mark.parametrize(("mode", "is_refused"), [("shared", True), ("per_loop", False)])
def test_other_modes_of_caching_are_refused_too(mode: str, is_refused: bool) -> None:
    model = random_model(LlamaConfig(**DECODER, kv_cache_mode=mode))
    if not is_refused:
        assert len(AttentionHook(model).layers) == 4
        return
    with pytest.raises(ModelLoadError, match="configuration has kv_cache_mode 'shared'"):
        AttentionHook(model)
