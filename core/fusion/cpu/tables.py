"""Embeddings as the kernel of a whole model reads them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from core.fusion.cpu.head import PackedEmbedding, PlainEmbedding
from core.kernels.cpu.model import Table
from core.model.plain import is_plain


def token_table(embedding: Any) -> Table | None:
    """The table of a token embedding whose result is float32."""
    if isinstance(embedding, PackedEmbedding | PlainEmbedding):
        return embedding.table()
    return _rows(embedding) if _is_float32(embedding) else None


def position_table(embedding: Any) -> Table | None:
    """The table of a position embedding, empty if there is none."""
    if embedding is None:
        return Table()
    return _rows(embedding) if _is_float32(embedding) else None


def _is_float32(embedding: Any) -> bool:
    weight = getattr(embedding, "weight", None)
    return isinstance(weight, torch.Tensor) and weight.dtype is torch.float32


def _rows(embedding: Any) -> Table | None:
    is_known = type(embedding) is nn.Embedding and is_plain(embedding)
    return Table.of_rows(embedding.weight) if is_known and embedding.max_norm is None else None
