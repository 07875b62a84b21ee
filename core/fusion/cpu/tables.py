"""Embeddings as the kernel of a whole model reads them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from core.fusion.cpu.head import PackedEmbedding, PlainEmbedding
from core.kernels.cpu.model import Table
from core.model.loaded_model import context_length
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


def has_all_rows(config: Any, tokens: Any, positions: Any, *, num_ids: int) -> bool:
    """Whether the embeddings have a row for every token of a step, and for its position.

    ``num_ids`` is the width of the logits. The kernel reads rows unchecked: prompts have known ids
    only, but any id may be sampled, and contexts are bounded by what the configuration says.
    """
    if tokens.num_embeddings < num_ids:
        return False
    length = context_length(config.get_text_config())
    return positions is None or (length is not None and length <= positions.num_embeddings)


def _is_float32(embedding: Any) -> bool:
    weight = getattr(embedding, "weight", None)
    return isinstance(weight, torch.Tensor) and weight.dtype is torch.float32


def _rows(embedding: Any) -> Table | None:
    is_known = type(embedding) is nn.Embedding and is_plain(embedding)
    return Table.of_rows(embedding.weight) if is_known and embedding.max_norm is None else None
