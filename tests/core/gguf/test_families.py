"""Every architecture: a tiny model written as llama.cpp's converter would, and read again."""

from __future__ import annotations

import pytest
import torch

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.gguf.module_names import MODULES as NAMES
from core.module.gguf import load_gguf
from tests.support.gguf_files import Raw, write_gguf
from tests.support.gguf_models import (
    MODELS,
    tensors_of_file,
    tiny_model,
    values_of_file,
    write_tiny,
)

CPU = torch.device("cpu")
IDS = torch.randint(3, 290, (1, 100), generator=torch.Generator().manual_seed(1))


def load(path):
    return load_gguf(ModelConfig(model=str(path), dtype="float32"), path, CPU).eval()


def test_every_architecture_has_a_tiny_model():
    assert MODELS.keys() - {"mixtral"} == NAMES.keys()


@pytest.mark.parametrize("family", MODELS)
def test_a_model_read_from_a_file_computes_the_same(tmp_path, family):
    model = load(write_tiny(tmp_path / "m.gguf", family))
    expected = tiny_model(family)
    assert type(model) is type(expected)
    ours, theirs = dict(model.named_parameters()), dict(expected.named_parameters())
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():  # an offset of norms was added and taken off in float32
        assert torch.allclose(ours[name], value, rtol=0, atol=2e-7), name
    with torch.no_grad():
        logits, wanted = model(IDS).logits, expected(IDS).logits
    assert (logits - wanted).abs().max() < 1e-4 * wanted.std()


def test_factors_of_frequencies_are_those_of_llama_3(tmp_path):
    factors = torch.tensor([1.0, 1.0, 1.5, 2.0, 4.0, 8.0, 8.0, 8.0])
    tensors = tensors_of_file("llama") | {"rope_freqs.weight": Raw.of(factors)}
    values = values_of_file("llama", **{"llama.rope.freq_base": 5e5})
    model = load(write_gguf(tmp_path / "m.gguf", values, tensors))
    plain = 1.0 / (5e5 ** (torch.arange(0, 16, 2).float() / 16))
    assert torch.allclose(model.model.rotary_emb.inv_freq, plain / factors)
    assert model.model.rotary_emb.attention_scaling == 1.0


def refused(tmp_path, family, values, tensors=None) -> str:
    tensors = tensors_of_file(family) if tensors is None else tensors
    with pytest.raises(ModelLoadError) as raised:
        load(write_gguf(tmp_path / "m.gguf", values, tensors))
    assert "m.gguf cannot be served: " in str(raised.value)
    return str(raised.value)


LLAMA = {
    "its architecture 'mamba' is not supported; gemma, gemma2,": {"general.architecture": "mamba"},
    "its metadata lacks llama.block_count": {"llama.block_count": None},
    "llama.block_count is 4000000000, not in 1 to": {"llama.block_count": 4_000_000_000},
    "llama.embedding_length is 0": {"llama.embedding_length": 0},
    "RoPE of 8 of 16 dimensions": {"llama.rope.dimension_count": 8},
    "RoPE scaling 'su' is not supported": {"llama.rope.scaling.type": "su"},
    "a factor of RoPE scaling without its type": {"llama.rope.scaling.factor": 2.0},
    "has llama.logit_scale, which could change what": {"llama.logit_scale": 0.5},
    "llama.attention.causal is false": {"llama.attention.causal": False},
    "it has 301 tokens and 300 rows": {"tokenizer.ggml.tokens": [str(i) for i in range(301)]},
    "keys of 16 and values of 8": {"llama.attention.value_length": 8},
    f"heads of {1 << 30} are wider": {"llama.attention.key_length": 1 << 30},
}


@pytest.mark.parametrize("message", LLAMA)
def test_metadata_that_is_not_understood_is_refused_by_name(tmp_path, message):
    assert message in refused(tmp_path, "llama", values_of_file("llama", **LLAMA[message]))


def test_sizes_are_compared_with_tensors_before_memory_is_allocated(tmp_path):
    values = values_of_file("llama", **{"llama.feed_forward_length": 1 << 30})
    assert "has the shape (96, 64), not (1073741824, 64)" in refused(tmp_path, "llama", values)


def test_tensors_that_are_missing_or_left_over_are_named(tmp_path):
    values, tensors = values_of_file("llama"), tensors_of_file("llama")
    extra = {"blk.0.attn_sinks.weight": tensors["output_norm.weight"]}
    assert "its tensor blk.0.attn_sinks.weight is not known" in refused(
        tmp_path, "llama", values, tensors | extra
    )
    for name in ("rope_factors_long.weight", "rope_factors_short.weight"):
        unused = {name: Raw.of(torch.ones(8))}
        assert f"its tensor {name} has no place" in refused(
            tmp_path, "llama", values, tensors | unused
        )
    for shape in ((7,), (1 << 16,), (1, 8)):
        wrong = {"rope_freqs.weight": Raw.of(torch.ones(shape))}
        assert "the tensor rope_freqs.weight is not a vector of 8 F32" in refused(
            tmp_path, "llama", values, tensors | wrong
        )
    extra = {"blk.7.attn_norm.weight": tensors["output_norm.weight"]}
    assert "its tensor blk.7.attn_norm.weight has no place" in refused(
        tmp_path, "llama", values, tensors | extra
    )
    few = {name: raw for name, raw in tensors.items() if name != "blk.1.ffn_up.weight"}
    assert "such as model.layers.1.mlp.up_proj.weight" in refused(tmp_path, "llama", values, few)


def test_end_tokens_are_those_named_and_control_tokens_with_usual_names(tmp_path):
    values = values_of_file("llama", **{"tokenizer.ggml.eot_token_id": 7})
    tokens, types = (
        list(values["tokenizer.ggml.tokens"]),
        values["tokenizer.ggml.token_type"].copy(),
    )
    tokens[290], tokens[291] = "<|im_end|>", "<|eot_id|>"
    types[290] = 3
    changes = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
    model = load(write_gguf(tmp_path / "m.gguf", values | changes, tensors_of_file("llama")))
    assert model.generation_config.eos_token_id == [2, 7, 290]
