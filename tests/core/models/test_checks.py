"""Sizes that do not go together are refused before a kernel sees them."""

from __future__ import annotations

from typing import Any

import pytest

from core.models.families import describe
from core.models.spec import Undescribed

ROPE = {"rope_type": "default", "rope_theta": 1e4}
NO_NUMBERS = {
    **ROPE,
    "rope_type": "longrope",
    "short_factor": [float("nan")] * 8,
    "long_factor": [1.0] * 8,
    "original_max_position_embeddings": 128,
}
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 90,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_parameters": ROPE,
}
MIXTRAL = LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
GROUPED = LLAMA | {
    "model_type": "dots1",
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 3,
    "norm_topk_prob": True,
    "n_group": 4,
    "topk_group": 2,
    "layer_types": ["full_attention"] * 2,
}

WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (LLAMA, {"vocab_size": 0}, "the vocabulary"),
    (LLAMA, {"intermediate_size": 0}, "feed-forward has no size"),
    (LLAMA, {"num_key_value_heads": 3}, "4 heads do not share 3"),
    (LLAMA, {"num_key_value_heads": 0}, "4 heads do not share 0"),
    (LLAMA, {"head_dim": 15}, "16 of 15 columns"),
    (LLAMA, {"rms_norm_eps": -1.0}, "epsilon of a norm is -1.0"),
    (LLAMA, {"rope_parameters": NO_NUMBERS}, "frequency of RoPE"),
    (LLAMA, {"rope_parameters": ROPE | {"rope_theta": -2.0}}, "base of RoPE is -2.0"),
    (MIXTRAL, {"num_experts_per_tok": 5}, "5 of 4 experts"),
    (MIXTRAL, {"num_experts_per_tok": 0}, "0 of 4 experts"),
    (GROUPED, {"n_group": 3}, "8 experts are no 3 groups"),
    (GROUPED, {"n_group": 8}, "8 experts in 8 groups"),
    (GROUPED, {"topk_group": 5}, "5 of 4 groups"),
    (GROUPED, {"num_experts_per_tok": 5}, "5 of 4 experts"),
]


@pytest.mark.parametrize("values", [LLAMA, MIXTRAL, GROUPED])
def test_sizes_that_go_together_are_described(values: dict[str, Any]) -> None:
    assert len(describe(values, 128)[0].layers) == 2


@pytest.mark.parametrize(("values", "changes", "message"), WRONG)
def test_sizes_that_do_not_are_refused(
    values: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(Undescribed, match=message):
        describe(values | changes, 128)
