"""Twins have the flags and the pattern of what they stand for, and are small."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from core.models.families import FAMILIES, describe
from core.models.spec import Attention, DecoderSpec
from core.proof.__main__ import values_of
from core.proof.twin import LENGTH, ROPE_LENGTH, twin_values, twins_of
from tests.core.models.cases import OLDER_FORMS
from tests.core.models.test_keys import FIRST, config_of, plain
from tests.core.models.twins import needs_class


def pattern(part: Any) -> Any:
    """A spec without sizes: a number is there, or it is not."""
    if is_dataclass(part):
        return type(part).__name__, *(pattern(getattr(part, f.name)) for f in fields(part))
    if isinstance(part, tuple):
        return "numbers"
    return bool(part) if type(part) in {int, float} else part


def kinds(spec: DecoderSpec) -> set[Any]:
    return {pattern(layer) for layer in spec.layers}


def spec_of(values: dict[str, Any]) -> DecoderSpec:
    return describe(values, LENGTH)[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_twin_has_the_pattern_of_its_original(family: str) -> None:
    needs_class(family)
    values = values_of(family)
    real, small = spec_of(values), spec_of(twin_values(values))
    assert pattern(small) == pattern(real)
    assert kinds(small) == kinds(real)
    assert small.ties_head == real.ties_head
    assert small.hidden_size <= 384
    assert len(small.layers) <= 12
    shapes = [shape for layer in small.layers for _, shape in layer.tensors(small.hidden_size)]
    assert max(max(shape) for shape in [*shapes, *dict(small.tensors()).values()]) <= 640


@pytest.mark.parametrize(("family", "older"), OLDER_FORMS, ids=lambda value: str(value)[:30])
def test_older_files_have_twins_in_their_form(family: str, older: dict[str, Any]) -> None:
    values = plain(config_of(FIRST[family]))
    values = {
        k: v for k, v in values.items() if k not in {"rope_parameters", "layer_types"}
    } | older
    twin = twin_values(values)
    assert older.keys() <= twin.keys()
    assert kinds(spec_of(twin)) == kinds(spec_of(values))


QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "attention_bias": False,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.51.0",
    "use_sliding_window": False,
    "vocab_size": 151936,
}


def heads(**changes: Any) -> tuple[int, int, int, int]:
    spec = spec_of(twin_values(QWEN3 | changes))
    mixer = spec.layers[0].mixer
    assert isinstance(mixer, Attention)
    return mixer.num_heads, mixer.num_kv_heads, mixer.head_dim, spec.hidden_size


def test_heads_keep_their_ratio() -> None:
    assert heads() == (4, 2, 16, 96)  # heads together are not the residual stream
    assert heads(num_attention_heads=8) == (4, 4, 16, 64)  # they are
    assert heads(num_attention_heads=9, num_key_value_heads=3)[:2] == (6, 2)
    assert heads(num_key_value_heads=1)[:2] == (8, 1)
    assert heads(num_attention_heads=128, num_key_value_heads=4)[:2] == (16, 2)


def test_models_of_other_sizes_have_the_same_twin() -> None:
    sizes = {"hidden_size": 1536, "num_hidden_layers": 40, "intermediate_size": 6144}
    other = QWEN3 | sizes | {"max_window_layers": 40, "eos_token_id": 7, "torch_dtype": "float16"}
    assert twin_values(other) == twin_values(QWEN3)
    assert twin_values(QWEN3 | {"tie_word_embeddings": False}) != twin_values(QWEN3)


def test_a_twin_reaches_the_last_kind_of_layer() -> None:
    windows = {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 21}
    types = ["full_attention"] * 21 + ["sliding_attention"] * 7
    twin = twin_values(QWEN3 | windows | {"layer_types": types})
    found = [layer.mixer.window for layer in spec_of(twin).layers]
    assert found == [None] * 21 + [19]


def test_rope_that_depends_on_the_served_length_has_two_twins() -> None:
    long, short = twins_of(values_of("phi3") | LONG)
    assert (long.max_model_len, short.max_model_len) == (LENGTH, 2 * ROPE_LENGTH)
    rotations = [describe(t.values, t.max_model_len)[0].layers[0].mixer.rope for t in (long, short)]
    assert rotations[0] != rotations[1]
    assert len(twins_of(QWEN3)) == 1


FACTORS = [1 + i / 10 for i in range(48)]
LONG: dict[str, Any] = {
    "original_max_position_embeddings": 4096,
    "max_position_embeddings": 131072,
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "original_max_position_embeddings": 4096,
        "short_factor": FACTORS,
        "long_factor": [2 * factor for factor in FACTORS],
    },
}
