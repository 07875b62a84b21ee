"""DecodeGraph: the decode step of one batch size, captured once and replayed."""

from __future__ import annotations

import numpy as np
import torch

from core.attention.base import DecodePlan, GraphableBackend
from core.batch.logits import Logits
from core.batch.model_input import ModelInput
from core.run.forward import EagerForward
from core.run.graphs.capture import Compute, GraphCapture
from core.sampling.greedy import greedy_tokens
from core.system.pinned import Uploads

_ALIGN = 4  # words: 16 bytes


class DecodeGraph:
    """Steps of up to ``num_rows`` sequences that compute one token each. Core thread only.

    Rows beyond the batch are padding: token 0 at position 0, with no slot to write to and no
    context to read.
    """

    def __init__(
        self, num_rows: int, plan: DecodePlan, buffer: torch.Tensor, uploads: Uploads
    ) -> None:
        """``buffer`` is int32 on the device; the plan's words start at ``plan_start``."""
        self._num_rows = num_rows
        self._plan = plan
        self._buffer = buffer
        self._uploads = uploads
        self._replay: Compute | None = None

    def capture(
        self, eager: EagerForward, backend: GraphableBackend, capture: GraphCapture
    ) -> None:
        """Capture the forward pass over a batch of padding."""
        num_rows = self._num_rows
        token_ids, positions = self._buffer[:num_rows], self._buffer[num_rows : 2 * num_rows]

        def compute() -> Logits:
            backend.use(self._plan)
            ids = token_ids
            if eager.last_tokens is not None:
                ids = eager.last_tokens.resolve(ids)
            values = eager.compute(ids, positions, 0)
            return Logits(values, greedy_tokens(values))

        self._upload(_empty_batch())
        self._replay = capture.capture(compute)

    def run(self, batch: ModelInput) -> Logits:
        """Compute a step of at most ``num_rows`` sequences."""
        assert self._replay is not None
        self._upload(batch)
        logits = self._replay()
        assert logits.best is not None
        return Logits(logits.values[: batch.num_seqs], logits.best[: batch.num_seqs])

    def _upload(self, batch: ModelInput) -> None:
        """Copy the step to the buffer, in one transfer."""
        num_seqs, num_rows, start = batch.num_seqs, self._num_rows, plan_start(self._num_rows)
        words = self._uploads.take(len(self._buffer))
        words[: 2 * num_rows] = 0
        words[:num_seqs] = batch.token_ids.numpy()
        words[num_rows : num_rows + num_seqs] = batch.positions.numpy()
        num_words = start + self._plan.fill(batch, words[start:])
        self._uploads.send(num_words, self._buffer)


def plan_start(num_rows: int) -> int:
    """Index of the plan's first word in the buffer, after token ids and positions."""
    return -(-2 * num_rows // _ALIGN) * _ALIGN


def _empty_batch() -> ModelInput:
    none = torch.empty(0, dtype=torch.int64)
    return ModelInput(
        token_ids=none,
        positions=none,
        slots=none,
        logits_indices=none,
        query_starts=np.zeros(1, dtype=np.int64),
        context_lens=np.zeros(0, dtype=np.int64),
        block_tables=np.zeros((0, 1), dtype=np.int64),
    )
