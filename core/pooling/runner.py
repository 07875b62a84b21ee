"""PoolingRunner: the forward pass of texts that become vectors or scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import nn

from core.contract.messages import EngineRequest
from core.pooling.heads import pool


class Runner(Protocol):
    """What the engine runs. Core thread only."""

    def run(self, batch: Sequence[EngineRequest]) -> torch.Tensor:
        """Return float32 [num_texts, size] on the CPU."""


class PoolingRunner(ABC):
    """Pads the texts of a batch on the right and runs transformers' own modelling code."""

    def __init__(self, module: Any, *, pad_id: int) -> None:
        self._module = module
        self._pad_id = pad_id
        self._has_segments = getattr(module.config, "type_vocab_size", 0) > 1
        module.config.use_cache = False
        module.config.pad_token_id = pad_id

    @abstractmethod
    def run(self, batch: Sequence[EngineRequest]) -> torch.Tensor:
        """See Runner."""

    def _forward(self, batch: Sequence[EngineRequest]) -> tuple[Any, torch.Tensor]:
        """The module's output, and the texts' lengths."""
        device = self._module.device
        lengths = [len(request.prompt_token_ids) for request in batch]
        ids = torch.full((len(batch), max(lengths)), self._pad_id)
        mask, segments = torch.zeros_like(ids), torch.zeros_like(ids)
        for row, request in enumerate(batch):
            ids[row, : lengths[row]] = torch.tensor(request.prompt_token_ids)
            mask[row, : lengths[row]] = 1
            if request.second_text_start is not None:
                segments[row, request.second_text_start : lengths[row]] = 1
        inputs = {"input_ids": ids, "attention_mask": mask}
        if self._has_segments:
            inputs["token_type_ids"] = segments
        output = self._module(**{name: value.to(device) for name, value in inputs.items()})
        return output, torch.tensor(lengths, device=device)


class EmbeddingRunner(PoolingRunner):
    """Runs the transformer, pools, applies dense layers, and normalises if the model does."""

    def __init__(
        self,
        module: Any,
        *,
        pad_id: int,
        poolings: Sequence[str],
        dense: Sequence[nn.Module],
        normalizes: bool,
    ) -> None:
        super().__init__(module, pad_id=pad_id)
        self._poolings = tuple(poolings)
        self._dense = nn.Sequential(*dense)
        self._normalizes = normalizes

    @torch.inference_mode()
    def run(self, batch: Sequence[EngineRequest]) -> torch.Tensor:
        """See Runner."""
        output, lengths = self._forward(batch)
        vectors = self._dense(pool(output.last_hidden_state.float(), lengths, self._poolings))
        if self._normalizes:
            vectors = nn.functional.normalize(vectors, dim=-1)
        on_cpu: torch.Tensor = vectors.cpu()
        return on_cpu


class ScoreRunner(PoolingRunner):
    """Runs a cross-encoder: a classifier of pairs of texts."""

    def __init__(self, module: Any, *, pad_id: int, activation: nn.Module) -> None:
        super().__init__(module, pad_id=pad_id)
        self._activation = activation

    @torch.inference_mode()
    def run(self, batch: Sequence[EngineRequest]) -> torch.Tensor:
        """See Runner."""
        output, _ = self._forward(batch)
        scores: torch.Tensor = self._activation(output.logits.float())
        return scores.cpu()
