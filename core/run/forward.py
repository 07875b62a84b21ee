"""ForwardPass: compute the logits of a step.

It plans the step's attention, and then calls the model's executor or transformers' module.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import nn

from core.attention.base import AttentionBackend
from core.batch.logits import Logits
from core.batch.model_input import ModelInput
from core.load.executor import Executor
from core.sampling.result import Tokens
from core.state.sequence import Sequence
from core.system.pinned import Uploads


class ForwardPass(Protocol):
    """Runs the model once. Core thread only, in inference mode."""

    @property
    def eager(self) -> EagerForward:
        """The pass that launches operations one by one."""

    def __call__(self, batch: ModelInput) -> Logits:
        """Compute the step. The tensors of ``batch`` are on the host."""


class EagerForward:
    """Runs the model's own code on one packed row of tokens ``[1, num_tokens]``, or its executor.

    ``last_tokens`` resolves negative token ids. It is None if a step never has any.
    """

    def __init__(
        self,
        model: nn.Module | None,
        backend: AttentionBackend,
        device: torch.device,
        last_tokens: LastTokens | None = None,
        executor: Executor | None = None,
    ) -> None:
        """``model`` is None if there is an ``executor``."""
        self.model: Any = model
        self.backend = backend
        self.device = device
        self.last_tokens = last_tokens
        self._executor = executor
        self._uploads = Uploads(device)

    @property
    def eager(self) -> EagerForward:
        return self

    def __call__(self, batch: ModelInput) -> Logits:
        is_resolved = self.last_tokens is None or bool((batch.token_ids >= 0).all())
        batch = batch.on(self.device, self._uploads)
        if not is_resolved:
            assert self.last_tokens is not None
            batch = replace(batch, token_ids=self.last_tokens.resolve(batch.token_ids))
        self.backend.plan(batch)
        if self._executor is not None:
            return self._executor(batch)
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


class LastTokens:
    """The tokens of the last launched step, one row per sequence. Core thread only.

    ``rows`` is the row of each sequence. In the token ids of a step, ``-1 - row`` refers to the
    token of that row. The buffer never moves, so that a CUDA graph can read it.
    """

    def __init__(self, max_num_seqs: int, device: torch.device) -> None:
        self.rows: dict[Sequence, int] = {}
        self._tokens = torch.zeros(max_num_seqs, dtype=torch.int64, device=device)

    def keep(self, sequences: list[Sequence], tokens: Tokens) -> None:
        """Replace the tokens; ``tokens[i]`` belongs to ``sequences[i]``.

        A row without a token (below 0: FAILED or MASKED) gets token 0, so that the next step
        has a valid input.
        """
        self.rows = {sequence: row for row, sequence in enumerate(sequences)}
        torch.clamp(torch.as_tensor(tokens), min=0, out=self._tokens[: len(tokens)])

    def resolve(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Return ``token_ids``, on the device, with references replaced by their tokens."""
        rows = torch.bitwise_not(token_ids).clamp_(min=0)  # -1 - id
        return torch.where(token_ids < 0, self._tokens.index_select(0, rows), token_ids)
