"""Matrices as blocks by role."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
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


SIZES: dict[str, Any] = {"num_hidden_layers": 8, "hidden_size": 256, "intermediate_size": 96}
LLAMA = {"qkv": "Q4_K Q4_K Q6_K", "output": "Q5_0", "up": "Q4_K Q4_K", "down": "Q8_0"}
SMALL = {"qkv": "Q5_0", "output": "Q5_0", "up": "Q5_0", "down": "Q8_0"}
"""Columns that do not divide into blocks of 256."""

CASES: list[tuple[Case, dict[str, str]]] = [
    (Case("llama", SIZES), LLAMA | {"head": "Q6_K"}),
    (Case("qwen3", SIZES | {"tie_word_embeddings": True}), LLAMA | {"embedding": "Q6_K"}),
    (
        Case("qwen2_moe", SIZES | {"shared_expert_intermediate_size": 64, "num_experts": 24}),
        {
            "qkv": "Q4_K Q4_K Q6_K",
            "output": "Q4_K",
            "shared_up": "Q4_K Q4_K",
            "shared_down": "Q8_0",
            "head": "Q6_K",
        },
    ),
    (Case("phi3", SIZES | {"hidden_size": 64}), SMALL | {"head": "Q8_0"}),
    (Case("starcoder2", SIZES), LLAMA | {"output": "Q4_K", "up": "Q4_K", "embedding": "Q6_K"}),
    (
        Case("gpt2", {"n_embd": 256, "n_layer": 8, "n_head": 4, "n_positions": 64}),
        {"qkv": "Q5_K", "output": "Q4_K", "up": "Q4_K", "down": "Q6_K", "embedding": "Q6_K"},
    ),
]
"""Types of the first layer and of the head; llama.cpp's mix by the names of modules had these."""


class Recorded(Quantiser):
    """Keeps the types that it gives."""

    def __init__(self, num_layers: int) -> None:
        assert KERNELS is not None
        super().__init__(KERNELS, num_layers)
        self.found: dict[tuple[str, int | None], str] = {}

    def quantised(self, role: str, layer: int | None, parts: Sequence[Weight]) -> list[Weight]:
        found = super().quantised(role, layer, parts)
        kinds = [part.type.name for part in found if isinstance(part, BlockMatrix)]
        self.found[role, layer] = " ".join(kinds)
        return found


@pytest.mark.parametrize(("case", "expected"), CASES, ids=lambda each: getattr(each, "family", ""))
def test_all_matrices_but_experts_and_routers_are_quantised(
    case: Case, expected: dict[str, str], tmp_path: Path
) -> None:
    assert KERNELS is not None
    model: Any = AutoModelForCausalLM.from_config(config_of(case), dtype=torch.bfloat16)
    model.save_pretrained(tmp_path)
    spec, names = describe(json.loads((tmp_path / "config.json").read_text()), 64)
    reader = RoleReader(SafetensorsFiles(tmp_path.glob("*.safetensors")), spec, names)
    quantiser = Recorded(8)
    CallBuilder(spec, reader, Packer(KERNELS, Format.INT8), quantiser).build()
    first = {role: kinds for (role, i), kinds in quantiser.found.items() if i in (None, 0)}
    assert first == expected
