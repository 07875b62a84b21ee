"""ForwardPass: compute the logits of a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import nn

from core.attention.base import AttentionBackend
from core.batch.logits import Logits
from core.batch.model_input import ModelInput
from core.run.last_tokens import LastTokens
from core.system.pinned import Uploads


class OwnForward(Protocol):
    """A forward pass of our own, beside a model's modules or in place of them, on the CPU.

    Core thread only, in inference mode.
    """

    def __call__(self, batch: ModelInput) -> Logits | None:
        """Compute a step whose attention is planned; None if the modules must."""


def offer_forward(model: nn.Module, forward: OwnForward) -> None:
    """Let ``EagerForward`` compute a model so."""
    model.roseinfer_forward = forward  # type: ignore[assignment]


class ForwardPass(Protocol):
    """Runs the model once. Core thread only, in inference mode."""

    @property
    def eager(self) -> EagerForward:
        """The pass that launches operations one by one."""

    def __call__(self, batch: ModelInput) -> Logits:
        """Compute the step. The tensors of ``batch`` are on the host."""


class EagerForward:
    """Runs the model's own code on one packed row of tokens ``[1, num_tokens]``.

    Or what ``offer_forward`` has put in its place. ``last_tokens`` resolves negative token ids. It
    is None if a step never has any.
    """

    def __init__(
        self,
        model: nn.Module | None,
        backend: AttentionBackend,
        device: torch.device,
        last_tokens: LastTokens | None = None,
        own: OwnForward | None = None,
    ) -> None:
        """``model`` is None if ``own`` computes every step."""
        self.model: Any = model
        self.backend = backend
        self.device = device
        self.last_tokens = last_tokens
        self._is_elsewhere = device.type != "cpu"
        self._own = own
        self._uploads = Uploads(device)

    @property
    def eager(self) -> EagerForward:
        return self

    def __call__(self, batch: ModelInput) -> Logits:
        is_resolved = self.last_tokens is None or bool((batch.token_ids >= 0).all())
        if self._is_elsewhere:
            batch = batch.on(self.device, self._uploads)
        if not is_resolved:
            assert self.last_tokens is not None
            batch = replace(batch, token_ids=self.last_tokens.resolve(batch.token_ids))
        self.backend.plan(batch)
        own = self._own
        if own is None:
            own = vars(self.model).get("roseinfer_forward")
        if own is not None and (logits := own(batch)) is not None:
            return logits
        return Logits(self.compute(batch.token_ids, batch.positions, batch.logits_indices))

    def compute(
        self, token_ids: torch.Tensor, positions: torch.Tensor, logits_indices: torch.Tensor | int
    ) -> torch.Tensor:
        """Return the logits of the indexed tokens (0: of all). Plan the attention first."""
        output = self.model(
            input_ids=token_ids[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=logits_indices,
        )
        logits: torch.Tensor = output.logits[0]
        if isinstance(logits_indices, torch.Tensor) and len(logits) != len(logits_indices):
            logits = logits[logits_indices]  # some models compute those of all tokens
        return logits
