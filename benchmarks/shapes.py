"""The matrices and heads of a model: the work of a step follows from them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.gguf.describe import values_of
from core.gguf.file import GgufFile


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Matrices and heads of a dense decoder.

    ``layer_matrices`` is name -> (output features, input features) of one layer; projections
    with a common input count as one matrix.
    """

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    layer_matrices: dict[str, tuple[int, int]]
    head_matrix: tuple[int, int]
    max_model_len: int

    @property
    def layer_params(self) -> int:
        """Elements of the matrices of all layers."""
        return self.num_layers * sum(rows * cols for rows, cols in self.layer_matrices.values())

    @property
    def head_params(self) -> int:
        """Elements of the output layer's matrix."""
        return self.head_matrix[0] * self.head_matrix[1]

    @property
    def kv_elements(self) -> int:
        """Elements of the keys and values of one token in all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim

    @property
    def attention_flops(self) -> int:
        """Operations of one token's attention to one token, in all layers."""
        return 4 * self.num_layers * self.num_heads * self.head_dim

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """The matrices of a layer, then the output layer's."""
        return self.layer_matrices | {"head": self.head_matrix}


def shape_of(model: Path) -> Shape:
    """Read the shape from a model directory's config.json. Raises KeyError for other families."""
    config: dict[str, Any] = json.loads((model / "config.json").read_text("utf-8"))
    return _gpt2(config) if config["model_type"] == "gpt2" else _gated(config)


def shape_of_file(path: Path) -> Shape:
    """Read the shape from a GGUF file. Raises ModelLoadError, or KeyError for other families."""
    _, values = values_of(GgufFile.open(path))
    return _gpt2(values) if values["model_type"] == "gpt2" else _gated(values)


def _gpt2(config: dict[str, Any]) -> Shape:
    hidden, num_heads = config["n_embd"], config["n_head"]
    inner = config.get("n_inner") or 4 * hidden
    return Shape(
        num_layers=config["n_layer"],
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=hidden // num_heads,
        layer_matrices={
            "qkv": (3 * hidden, hidden),
            "out": (hidden, hidden),
            "up": (inner, hidden),
            "down": (hidden, inner),
        },
        head_matrix=(config["vocab_size"], hidden),
        max_model_len=config["n_positions"],
    )


def _gated(config: dict[str, Any]) -> Shape:
    """Llama and similar families: grouped-query attention and a gated feed-forward block."""
    hidden, num_heads = config["hidden_size"], config["num_attention_heads"]
    num_kv_heads = config.get("num_key_value_heads") or num_heads
    head_dim = config.get("head_dim") or hidden // num_heads
    inner = config["intermediate_size"]
    return Shape(
        num_layers=config["num_hidden_layers"],
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        layer_matrices={
            "qkv": ((num_heads + 2 * num_kv_heads) * head_dim, hidden),
            "out": (hidden, num_heads * head_dim),
            "gate and up": (2 * inner, hidden),
            "down": (hidden, inner),
        },
        head_matrix=(config["vocab_size"], hidden),
        max_model_len=config["max_position_embeddings"],
    )
