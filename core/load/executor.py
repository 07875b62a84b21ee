"""Executor: the computation of a model from its spec, without transformers' modules."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from core.attention.base import AttentionBackend
from core.batch.logits import Logits
from core.batch.model_input import ModelInput
from core.kernels.cpu.threads import LentCore
from core.kv.layer_spec import LayerSpec


class Attending(Protocol):
    """A computation of a model's layers whose attention can be replaced. Core thread only."""

    @property
    def layers(self) -> list[LayerSpec]:
        """The shapes of each call, in the order of a pass."""

    def attach(self, backend: AttentionBackend) -> None:
        """Compute the attention of every later pass with a backend."""

    def uninstall(self) -> None:
        """Release the backend. Attach another one before the next pass."""


class Executor(Attending, Protocol):
    """Computes the logits of packed tokens over a paged KV cache. Core thread only."""

    begin: Callable[[], object]
    """Called before the layers are computed: other Python threads may run from then on."""
    lent: LentCore | None
    """A core that may be lent meanwhile."""
    times: AbstractContextManager[int | None]
    """Surrounds the call that computes all layers; gives the memory of StageTimes, or None."""

    def fix_length(self, max_model_len: int) -> None:
        """Take the frequencies of RoPE for contexts of up to so many tokens."""

    def __call__(self, batch: ModelInput) -> Logits:
        """The logits of a step whose attention is planned."""
