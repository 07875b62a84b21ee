"""Matrices as blocks by role: the same types and bytes as by the names of modules."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from core.fusion.cpu.in_blocks import quantise_to_blocks
from transformers import AutoModelForCausalLM

from core.contract.errors import ModelLoadError
from core.executors.layer_calls import CallBuilder
from core.gguf.blocks import Q4_K, Q5_0, Q5_K, Q6_K, Q8_0, BlockMatrix
from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import Format
from core.models.families import describe
from core.weights.packer import Packer
from core.weights.quantiser import Quantiser
from core.weights.roles import RoleReader, SafetensorsFiles, Weight
from tests.core.models.cases import Case
from tests.core.models.twins import config_of

KERNELS = kernels()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="no C++ compiler")

SIZES: dict[str, Any] = {"num_hidden_layers": 8, "hidden_size": 256, "intermediate_size": 96}
CASES = [
    Case("llama", SIZES),
    Case("qwen3", SIZES | {"tie_word_embeddings": True}),
    Case("qwen2_moe", SIZES | {"shared_expert_intermediate_size": 64, "num_experts": 24}),
    Case("phi3", SIZES | {"hidden_size": 64}),
    Case("starcoder2", SIZES),
    Case("gpt2", {"n_embd": 256, "n_layer": 8, "n_head": 4, "n_positions": 64}),
]


class Recorded(Quantiser):
    """Keeps what it makes."""

    def __init__(self, num_layers: int) -> None:
        assert KERNELS is not None
        super().__init__(KERNELS, num_layers)
        self.found: dict[tuple[str, int | None], list[Weight]] = {}

    def quantised(self, role: str, layer: int | None, parts: Sequence[Weight]) -> list[Weight]:
        found = super().quantised(role, layer, parts)
        self.found[role, layer] = found
        return found


@torch.inference_mode()
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.family)
def test_blocks_are_those_of_the_modules(case: Case, tmp_path: Path) -> None:
    assert KERNELS is not None
    model: Any = AutoModelForCausalLM.from_config(config_of(case), dtype=torch.bfloat16)
    model.save_pretrained(tmp_path)
    spec, names = describe(json.loads((tmp_path / "config.json").read_text()), 64)
    reader = RoleReader(SafetensorsFiles(tmp_path.glob("*.safetensors")), spec, names)
    quantiser = Recorded(8)
    CallBuilder(spec, reader, Packer(KERNELS, Format.INT8), quantiser).build()
    replaced = copy.deepcopy(model)
    quantise_to_blocks(KERNELS, replaced)
    for (role, layer), parts in quantiser.found.items():
        for name, part in zip(names.of(role, layer), parts, strict=True):
            root = names.roots[0] if role != "head" else ""
            module = replaced.get_submodule(root + name.removesuffix(".weight"))
            assert isinstance(part, BlockMatrix), name
            assert part.type is module.weight.type, name
            assert (part.data == module.weight.data).all(), name
    of_first = {role for role, layer in quantiser.found if layer == 0}
    assert of_first >= {"qkv", "output"} | ({"up"} if case.family != "qwen2_moe" else {"shared_up"})
    top = {role for role, layer in quantiser.found if layer is None}
    assert top == ({"embedding"} if spec.ties_head else {"head"})


def types(role: str, layer: int | None, *matrices: torch.Tensor) -> list[str]:
    assert KERNELS is not None
    found = Quantiser(KERNELS, 8).quantised(role, layer, matrices)
    return [part.type.name if isinstance(part, BlockMatrix) else "none" for part in found]


def test_the_mix_is_that_of_q4_k_m() -> None:
    wide, narrow, odd = torch.randn(16, 256), torch.randn(16, 96), torch.randn(16, 20)
    mixed = [Q6_K, Q4_K, Q4_K, Q6_K, Q4_K, Q4_K, Q6_K, Q6_K]  # the first, the last, every third
    for i, kind in enumerate(mixed):
        assert types("qkv", i, wide, wide, wide) == [Q4_K.name, Q4_K.name, kind.name]
        assert types("down", i, wide) == types("shared_down", i, wide) == [kind.name]
        assert types("up", i, wide, wide) == [Q4_K.name] * 2
    assert types("qkv", 0, wide) == [Q5_K.name]
    assert types("head", None, wide) == types("embedding", None, wide) == [Q6_K.name]
    assert types("head", None, narrow) == [Q8_0.name]
    assert types("up", 0, narrow) == types("qkv", 0, narrow) == [Q5_0.name]
    assert types("up", 0, odd) == ["none"]


def test_weights_that_are_not_finite_are_named() -> None:
    matrix = torch.randn(16, 256)
    matrix[2, 7] = torch.inf
    with pytest.raises(ModelLoadError, match="int4: output of layer 3 has weights that are not"):
        types("output", 3, matrix)
