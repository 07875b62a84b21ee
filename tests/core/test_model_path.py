"""Which path computes a model: that of its family, or a slower one with the reason."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from core.fusion.path import FAMILIES
from torch import nn
from transformers import CONFIG_MAPPING

from core.build import assemble
from core.contract.config import EngineConfig, Quantization
from core.contract.info import ModelPath
from core.kernels.cpu import library
from core.kernels.cpu.building import KernelsUnavailable
from core.model.loaded_model import describe
from core.text.tokenizer import Tokenizer
from tests.support.each import each
from tests.support.tokenizers import byte_level
from tests.zoo.shrink import tiny_config, tiny_model

pytestmark = pytest.mark.skipif(library.kernels() is None, reason="no C++ compiler")

WHOLE = "whole model in one call"

NAMED = (
    *("llama", "mistral", "qwen2", "qwen3", "gpt2", "gpt_oss", "mixtral", "qwen2_moe"),
    *("qwen3_moe", "starcoder2", "seed_oss", "olmoe"),
)
"""Families of which every supported version of transformers has the classes."""

OTHERS = [
    (family, path)
    for path, families in FAMILIES.items()
    for family in sorted({*families} - {*NAMED})
    if family in CONFIG_MAPPING
]


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings of ours, not of transformers."""
    records = [record for record in caplog.records if record.name == "roseinfer.core"]
    return [record.getMessage() for record in records if record.levelno == logging.WARNING]


def path_of(
    model: Any, *, quantization: Quantization = "none", attention_backend: str = "auto"
) -> ModelPath:
    """Load as ``load_engine`` does, but for the files."""
    config: dict[str, Any] = {"attention_backend": attention_backend}
    return assemble(
        describe(model, model.device),
        Tokenizer(byte_level(), vocab_size=model.config.get_text_config().vocab_size),
        EngineConfig(
            max_num_seqs=2,
            max_num_batched_tokens=32,
            kv_cache_memory=8 << 20,
            max_model_len=64,
            **config,
        ),
        quantization,
    ).info.path


def built(family: str, **fields: Any) -> Any:
    return tiny_model(tiny_config(family, **fields))


@pytest.mark.parametrize("family", NAMED)
def test_the_whole_model_is_one_call(family: str, caplog: pytest.LogCaptureFixture) -> None:
    assert path_of(built(family)) == ModelPath(name=WHOLE, expected=WHOLE)
    assert not warnings_in(caplog)


# gpt_bigcode's code below transformers 5.23 uses what torch no longer likes
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@each(("family", "path"), OTHERS)
def test_other_families_have_the_path_of_the_table(family: str, path: str) -> None:
    assert str(path_of(built(family))) == path


@each("quantization", ["int8", "int4"])
def test_a_quantised_model_is_one_call_too(quantization: Quantization) -> None:
    sizes = {"hidden_size": 256, "intermediate_size": 256, "head_dim": 64}
    assert path_of(built("qwen3", **sizes), quantization=quantization).name == WHOLE


@pytest.mark.parametrize("family", ["gemma3_text", "olmo2", "phi3"])
def test_no_warning_where_a_family_has_no_faster_path(
    family: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert str(path_of(built(family))) == "module by module"
    assert not warnings_in(caplog)


def other_layer(model: Any) -> None:
    """A subclass that computes something else."""
    original = type(model.model.layers[1])

    class ScaledLayer(original):  # type: ignore[misc, valid-type]
        def forward(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            return super().forward(hidden_states, *args, **kwargs) * 0.5

    model.model.layers[1].__class__ = ScaledLayer


def no_rope(model: Any) -> None:
    """Attention whose code does not call RoPE by its usual name."""

    class PlainAttention(type(model.model.layers[0].self_attn)):  # type: ignore[misc]
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return super().forward(*args, **kwargs)

    for layer in model.model.layers:
        layer.self_attn.__class__ = PlainAttention


def more_in_attention(model: Any) -> None:
    model.model.layers[0].self_attn.gate = nn.Linear(1, 1).requires_grad_(False)


def more_in_a_layer(model: Any) -> None:
    model.model.layers[0].extra_norm = nn.Identity()


def unknown_activation(model: Any) -> None:
    for layer in model.model.layers:
        layer.mlp.act_fn = nn.ReLU()


def more_around_layers(model: Any) -> None:
    model.model.extra = nn.Identity()


def scaled_logits(model: Any) -> None:
    original = model.forward

    def scaled(*args: Any, **kwargs: Any) -> Any:
        output = original(*args, **kwargs)
        output.logits = output.logits * 0.9
        return output

    model.forward = scaled


def other_head(model: Any) -> None:
    class Head(nn.Linear):
        pass

    model.lm_head.__class__ = Head


CHANGES = {
    other_layer: ("module by module", "layer 1, ScaledLayer: it computes something else than"),
    no_rope: ("module by module", "layer 0, LlamaDecoderLayer: .*; PlainAttention has no known R"),
    more_in_attention: ("module by module", "its attention, LlamaAttention, has .*known: gate"),
    more_in_a_layer: ("module by module", "layer 0, LlamaDecoderLayer: its modules .*extra_norm"),
    unknown_activation: ("module by module", "layer 0, .*: its block, LlamaMLP, is not known"),
    more_around_layers: ("layer by layer", "LlamaForCausalLM: there are other modules around"),
    scaled_logits: ("all layers in one call", "LlamaForCausalLM: it computes something else"),
    other_head: ("all layers in one call", "LlamaForCausalLM: its output layer is not fused"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_not_recognised_is_warned_of_by_name(
    change: Callable[[Any], None], caplog: pytest.LogCaptureFixture
) -> None:
    model = built("llama")
    change(model)
    path = path_of(model)
    name, reason = CHANGES[change]
    assert (path.name, path.expected) == (name, WHOLE)
    [warning] = warnings_in(caplog)
    assert warning == f"the model's family has a faster path: {path}"
    assert re.search(f": {name}, not {WHOLE}: .*{reason}", warning)


def test_attention_outside_of_the_kernels_is_the_reason() -> None:
    path = path_of(built("qwen3"), attention_backend="torch")
    assert path.name == "layer by layer"
    assert path.slower_because == "attention 'torch' is not part of the compiled kernels"


def test_a_type_that_the_kernels_lack_is_the_reason() -> None:
    path = path_of(built("qwen3").to(torch.float16))
    assert path.name == "transformers' modules"
    assert path.slower_because == "the compiled kernels do not compute a model in float16"


@pytest.fixture
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def fail() -> None:
        raise KernelsUnavailable("no C++ compiler: install g++")

    library.kernels_or_reason.cache_clear()
    monkeypatch.setattr(library, "compiled_library", fail)
    yield
    library.kernels_or_reason.cache_clear()


@pytest.mark.usefixtures("_no_compiler")
@pytest.mark.parametrize(("family", "is_slower"), [("qwen3", True), ("gemma3_text", False)])
def test_a_machine_without_a_compiler_is_the_reason(family: str, is_slower: bool) -> None:
    path = path_of(built(family))
    reason = "no compiled kernels: no C++ compiler: install g++"
    assert path.name == "transformers' modules"
    assert path.slower_because == (reason if is_slower else "")
