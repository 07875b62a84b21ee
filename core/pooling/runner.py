"""PoolingRunner: the forward pass of texts that become vectors or scores."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import torch
from torch import nn

from core.contract.messages import EngineRequest
from core.pooling.heads import pool


class TextRunner(Protocol):
    """Computes the vectors or scores of texts. Core thread only."""

    def run(self, batch: Sequence[EngineRequest]) -> torch.Tensor:
        """Return float32 [num_texts, size] on the CPU."""


class PoolingRunner(ABC):
    """Pads the texts of a batch and runs transformers' own modelling code."""

    pads_left: ClassVar[bool] = False
    """Else on the right."""

    def __init__(self, module: Any, *, pad_id: int) -> None:
        self._module = module
        self._pad_id = pad_id
        self._takes = frozenset(inspect.signature(module.forward).parameters)
        self._has_segments = getattr(module.config, "type_vocab_size", 0) > 1
        module.config.use_cache = False
        module.config.pad_token_id = pad_id

    @abstractmethod
    def run(self, batch: Sequence[EngineRequest]) -> torch.Tensor:
        """See TextRunner."""

    def _forward(self, batch: Sequence[EngineRequest], **options: Any) -> tuple[Any, torch.Tensor]:
        """The module's output, and the texts' lengths. ``options`` are the module's."""
        device = self._module.device
        lengths = [len(request.prompt_token_ids) for request in batch]
        ids = torch.full((len(batch), max(lengths)), self._pad_id)
        mask, segments = torch.zeros_like(ids), torch.zeros_like(ids)
        for row, request in enumerate(batch):
            start = ids.shape[1] - lengths[row] if self.pads_left else 0
            text = slice(start, start + lengths[row])
            ids[row, text] = torch.tensor(request.prompt_token_ids)
            mask[row, text] = 1
            if request.second_text_start is not None:
                segments[row, text][request.second_text_start :] = 1
        inputs = {"input_ids": ids, "attention_mask": mask}
        if self._has_segments:
            inputs["token_type_ids"] = segments
        if "position_ids" in self._takes and self.pads_left:
            inputs["position_ids"] = (mask.cumsum(dim=1) - 1).clamp(min=0)
        given = {name: value.to(device) for name, value in inputs.items()}
        output = self._module(**given, **options)
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
        """See TextRunner."""
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
        """See TextRunner."""
        output, _ = self._forward(batch)
        scores: torch.Tensor = self._activation(output.logits.float())
        return scores.cpu()


class LogitRunner(PoolingRunner):
    """Runs a causal model that answers with a word: a score is made of logits after the text."""

    pads_left = True

    def __init__(
        self, module: Any, *, pad_id: int, activation: nn.Module, ids: Sequence[int]
    ) -> None:
        """``ids`` are the token of a match and, if it counts, that of none."""
        super().__init__(module, pad_id=pad_id)
        self._activation = activation
        self._ids = tuple(ids)

    @torch.inference_mode()
    def run(self, batch: Sequence[EngineRequest]) -> torch.Tensor:
        """See TextRunner."""
        last_only = {"logits_to_keep": 1} if "logits_to_keep" in self._takes else {}
        output, _ = self._forward(batch, **last_only)
        last = output.logits[:, -1].float()
        scores = last[:, self._ids[0]]
        for other in self._ids[1:]:
            scores = scores - last[:, other]
        on_cpu: torch.Tensor = self._activation(scores[:, None]).cpu()
        return on_cpu
