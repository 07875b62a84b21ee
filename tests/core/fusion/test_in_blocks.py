"""Models whose linear layers are in blocks, and ``--quantization int4``."""

from __future__ import annotations

import copy
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.fusion.cpu.catalogue import fuse_for_cpu
from core.fusion.cpu.in_blocks import quantise_to_blocks, types_of_blocks
from core.gguf.blocks import F32, Q4_K, Q5_0, Q5_K, Q6_K, Q8_0, BlockMatrix
from core.gguf.modules import BlockEmbedding, BlockLinear, product
from core.gguf.values import values_of
from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import Format
from core.model.hook import AttentionHook
from core.model.loader import load_model
from tests.support.checkpoints import tiny_model
from tests.support.gguf_blocks import random_matrix
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import in_blocks, tensors_of_file, values_of_file

pytestmark = pytest.mark.skipif(kernels() is None, reason="no C++ compiler")


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        for name in ("q_proj", "v_proj", "down_proj", "c_attn"):
            setattr(self, name, nn.Linear(width, 16))


class Decoder(nn.Module):
    """Eight layers, and an output layer that shares its weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(8))
        self.embed = nn.Embedding(40, width)
        self.head = nn.Linear(width, 40, bias=False)
        self.head.weight = self.embed.weight

    def get_output_embeddings(self) -> nn.Module:
        return self.head

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def set_input_embeddings(self, module: nn.Module) -> None:
        self.embed = module


def types(model: Any, name: str) -> list[str]:
    return [getattr(layer, name).weight.type.name for layer in model.layers]


@torch.inference_mode()
def test_the_mix_is_that_of_q4_k_m() -> None:
    model: Any = Decoder(256)
    quantise_to_blocks(kernels(), model)
    mixed = [Q6_K, Q4_K, Q4_K, Q6_K, Q4_K, Q4_K, Q6_K, Q6_K]  # the first, the last, every third
    assert types(model, "q_proj") == [Q4_K.name] * 8
    assert types(model, "v_proj") == types(model, "down_proj") == [kind.name for kind in mixed]
    assert types(model, "c_attn") == [Q5_K.name] * 8
    assert type(model.embed) is BlockEmbedding
    assert model.embed.weight is model.head.weight
    assert model.head.weight.type is Q6_K


def test_widths_that_are_no_multiple_of_256() -> None:
    model: Any = Decoder(96)
    quantise_to_blocks(kernels(), model)
    assert set(types(model, "q_proj")) == {Q5_0.name}
    assert set(types(model, "v_proj")) == {Q5_0.name, Q8_0.name}
    model = Decoder(20)
    quantise_to_blocks(kernels(), model)
    assert types_of_blocks(model) == []


def test_routers_stay_as_they_are() -> None:
    """An error in a router's weight chooses other experts."""
    model: Any = Decoder(256)
    model.config = SimpleNamespace(num_experts=24)
    for layer, rows in zip(model.layers, (24, 25, 15, 1, 16, 24, 24, 24), strict=True):
        layer.gate = nn.Linear(256, rows, bias=False)
    gates = [layer.gate.weight.detach() for layer in model.layers]
    quantise_to_blocks(kernels(), model)
    stay = [layer.gate.weight.type is F32 for layer in model.layers]
    assert stay == [True, False, True, True, False, True, True, True]
    for layer, weight in zip(model.layers, gates, strict=True):
        found = values_of(layer.gate.weight)
        assert torch.equal(found, weight) == (layer.gate.weight.type is F32)


@torch.inference_mode()
def test_values_are_near_the_original() -> None:
    model: Any = Decoder(512)
    original = copy.deepcopy(model)
    quantise_to_blocks(kernels(), model)
    x, ids = torch.randn(5, 512), torch.arange(40)
    for name, bound in (("q_proj", 0.1), ("c_attn", 0.05)):
        layer, expected = model.layers[1], original.layers[1]
        found = getattr(layer, name)(x) - getattr(expected, name)(x)
        assert float(found.norm()) <= bound * float(getattr(expected, name)(x).norm())
    assert float((model.embed(ids) - original.embed(ids)).norm()) <= 0.02 * 40**0.5 * 512**0.5


def test_refusals() -> None:
    model: Any = Decoder(256)
    with pytest.raises(ModelLoadError, match="needs the compiled kernels"):
        quantise_to_blocks(None, model)
    with torch.no_grad():
        model.layers[3].v_proj.weight[2, 7] = torch.inf
    with pytest.raises(ModelLoadError, match=r"layers\.3\.v_proj has weights that are not finite"):
        quantise_to_blocks(kernels(), model)


@pytest.mark.parametrize("family", ["qwen3", "gpt2", "gemma3", "llama"])
def test_all_layers_are_fused(family: str) -> None:
    """With one matrix of queries, keys and values in another type than its neighbours."""
    compiled = kernels()
    assert compiled is not None
    model: Any = copy.deepcopy(tiny_model(family))
    usual = copy.deepcopy(model)
    quantise_to_blocks(compiled, model)
    kinds = types_of_blocks(model)
    hooks = [AttentionHook(m) for m in (model, usual)]
    found, expected = (
        fuse_for_cpu(compiled, m, list(zip(h.modules, h.layers, strict=True)), Format.FLOAT32)
        for m, h in zip((model, usual), hooks, strict=True)
    )
    assert kinds
    assert found == expected
    assert not any(isinstance(m, (BlockLinear, BlockEmbedding)) for m in model.modules())


def test_matrices_of_blocks_are_not_copied() -> None:
    matrix = random_matrix(Q4_K, 3, 256)
    assert copy.deepcopy(matrix) is matrix
    assert np.shares_memory(matrix.part(1, 2).data, matrix.data)
    assert isinstance(matrix, BlockMatrix)
    assert ModelConfig(quantization="int4").quantization == "int4"


class _Products(TorchFunctionMode):
    """Counts how often the values of each matrix are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[int] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is product:
            self.counts[id(args[1])] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3", "gemma3"])
def test_the_values_of_one_matrix_of_a_kind_are_computed_once(family: str, tmp_path: Path) -> None:
    tensors = in_blocks(tensors_of_file(family))
    path = write_gguf(tmp_path / "m.gguf", values_of_file(family), tensors)
    model: Any = load_model(ModelConfig(model=str(path), device="cpu")).module
    hook = AttentionHook(model)
    kinds = {
        id(m.weight): (re.sub(r"\d+", "*", name), m.weight.type.name)
        for name, m in model.named_modules()
        if isinstance(m, BlockLinear)
    }
    with _Products() as products:
        fuse_for_cpu(
            kernels(), model, list(zip(hook.modules, hook.layers, strict=True)), Format.FLOAT32
        )
    assert set(products.counts.values()) == {1}
    assert {kinds[place] for place in products.counts} == set(kinds.values())
    assert len(products.counts) == len(set(kinds.values()))


def test_layers_of_one_kind_in_blocks_are_proved_once() -> None:
    compiled = kernels()
    assert compiled is not None
    model: Any = copy.deepcopy(tiny_model("llama"))
    quantise_to_blocks(compiled, model)
    hook = AttentionHook(model)
    weights = [m.weight for m in model.modules() if isinstance(m, BlockLinear)]
    with _Products() as products:
        fuse_for_cpu(
            compiled, model, list(zip(hook.modules, hook.layers, strict=True)), Format.FLOAT32
        )
    types_of_weights = {weight.type.name for weight in weights}
    assert len(products.counts) == len(types_of_weights) < len(weights)
