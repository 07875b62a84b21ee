"""End tokens and defaults of sampling are those of transformers' models."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from core import builtin_model
from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.load.config_files import (
    SAMPLING,
    check_generation_config,
    end_ids,
    generation_of,
    raw_config,
)
from tests.support.checkpoints import random_model

IDS = st.none() | st.integers(0, 9) | st.lists(st.integers(0, 9), min_size=1, max_size=3)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "eos_token_id": IDS,
        "do_sample": st.booleans(),
        "temperature": st.none() | st.floats(0.1, 2.0),
        "top_k": st.none() | st.integers(1, 50),
        "top_p": st.none() | st.floats(0.1, 1.0),
        "min_p": st.none() | st.floats(0.0, 0.5),
        "repetition_penalty": st.none() | st.floats(1.0, 2.0),
    },
)


@functools.cache
def tiny_llama() -> Any:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 10}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    return random_model(AutoConfig.for_model("llama", bos_token_id=None, **sizes, **heads))


def loaded(folder: Path) -> tuple[frozenset[int], dict[str, float]]:
    """The end tokens and defaults of transformers' model."""
    found = AutoModelForCausalLM.from_pretrained(folder).generation_config
    values = {name: value for name in SAMPLING if (value := getattr(found, name)) is not None}
    return end_ids({"eos_token_id": found.eos_token_id}), values


@given(generation=st.none() | FIELDS, config=FIELDS)
@settings(max_examples=40, deadline=None)
def test_end_tokens_and_sampling_are_those_of_transformers(tmp_path_factory, generation, config):
    folder = tmp_path_factory.mktemp("model")
    tiny_llama().save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    (folder / "generation_config.json").unlink()
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    check_generation_config(str(folder))
    assert generation_of(folder) == loaded(folder)


@given(config=FIELDS, inner=FIELDS, name=st.sampled_from(["text_config", "decoder"]))
@settings(max_examples=40, deadline=None)
def test_a_config_with_a_part_for_text_is_read(tmp_path_factory, config, inner, name):
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(config | {name: inner}))
    found = GenerationConfig.from_model_config(config | {name: inner})
    values = {name: value for name in SAMPLING if (value := getattr(found, name)) is not None}
    assert generation_of(folder) == (end_ids(found.to_dict()), values)


def test_the_built_in_models_are_read():
    ids, values = generation_of(builtin_model.path())
    assert (ids, values) == loaded(builtin_model.path())
    assert ids
    assert values


def test_a_broken_file_is_named(tmp_path):
    (tmp_path / "generation_config.json").write_text("[1]")
    with pytest.raises(ModelLoadError, match=r"generation_config\.json holds no JSON object"):
        generation_of(tmp_path)


@pytest.mark.parametrize(
    "fields",
    [{"num_hidden_layers": 1 << 40}, {"head_dim": 1 << 31}, {"text_config": {"n_layer": 1 << 31}}],
)
def test_sizes_that_would_fill_the_memory_are_refused(tmp_path, fields):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"} | fields))
    with pytest.raises(ModelLoadError, match=r"(num_hidden_layers|head_dim|n_layer) is more than"):
        raw_config(ModelConfig(model=str(tmp_path)), str(tmp_path))
