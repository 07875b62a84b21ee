"""LoadedModel: a model on its device, and what its configuration says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from core.load.executor import Executor

_CONTEXT_FIELDS = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_seq_len",
    "max_target_positions",
    "max_sequence_length",
    "seq_length",
)
"""Names that configurations use for the context length."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that is ready to compute. ``dtype`` is the type of its activations.

    ``config`` has the fields of the text model's configuration. ``module`` is transformers' module
    in evaluation mode, or None if ``executor`` computes the model from its spec.
    ``undescribed`` says why a model whose family has a row has no executor.
    """

    module: Any
    device: torch.device
    dtype: torch.dtype
    vocab_size: int
    max_model_len: int | None  # tokens; None if the configuration does not say
    eos_token_ids: frozenset[int]
    default_sampling: dict[str, float]
    config_eos_ids: frozenset[int] = frozenset()  # a configuration without any has its class's
    num_parameters: int = 0
    config: Any = None
    executor: Executor | None = None
    in_blocks: bool = False  # some matrices of the executor
    computation: str = ""  # of the executor, in words
    undescribed: str = ""

    @property
    def architecture(self) -> str:
        """The ``model_type`` of the configuration."""
        config = self.config if self.module is None else self.module.config
        return str(getattr(config, "model_type", ""))

    @property
    def num_token_ids(self) -> int:
        """Number of ids that a prompt may have: each has a row of the embedding and a logit."""
        if self.executor is not None:
            return self.vocab_size
        embedding = self.module.get_input_embeddings()
        rows = getattr(embedding, "num_embeddings", None)
        return min(self.vocab_size, rows) if isinstance(rows, int) else self.vocab_size


def context_length(config: Any) -> int | None:
    """Return the context length in tokens that a configuration names, or None."""
    return next(
        (
            value
            for name in _CONTEXT_FIELDS
            if isinstance(value := getattr(config, name, None), int) and value > 0
        ),
        None,
    )
