"""GraphedForward: a forward pass that replays decode steps, each batch size's captured once."""

from __future__ import annotations

import gc
import logging
from bisect import bisect_left

import numpy as np
import torch

from core.attention.base import DecodePlan, GraphableBackend
from core.batch.logits import Logits
from core.batch.model_input import ModelInput
from core.hook.hook import AttentionHook
from core.run.forward import EagerForward, ForwardPass
from core.run.graphs.capture import Compute, GraphCapture
from core.run.graphs.pieces import PiecewiseForward
from core.run.graphs.sizes import graph_batch_sizes, piece_sizes
from core.sampling.greedy import greedy_tokens
from core.system.pinned import Uploads

logger = logging.getLogger("roseinfer.core")

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


def with_graphs(
    eager: EagerForward,
    hook: AttentionHook,
    capture: GraphCapture,
    *,
    max_num_seqs: int,
    max_context: int,
    max_num_tokens: int,
    num_parameters: int,
) -> ForwardPass:
    """Capture the steps of ``eager``, or as many of them as is possible, with a warning.

    ``hook`` routes the attention of its model. ``max_context`` is the longest context of a
    sequence, ``max_num_tokens`` the most of a step; ``num_parameters`` are the model's.
    """
    backend = eager.backend
    if not isinstance(backend, GraphableBackend):
        return eager
    forward: ForwardPass = eager
    try:
        forward = GraphedForward(
            eager, backend, capture, max_num_seqs=max_num_seqs, max_context=max_context
        )
        sizes = piece_sizes(max_num_tokens, num_parameters)
        return PiecewiseForward(
            forward, backend, hook, capture, sizes=sizes, max_num_logits=max_num_seqs
        )
    except RuntimeError as error:  # the pass waits for the device, or memory is exhausted
        what = "CUDA graphs" if forward is eager else "CUDA graphs of steps with prompts"
        reason = str(error).strip().partition("\n")[0]
        logger.warning("%s are disabled: %s", what, reason)
        return forward
    finally:
        torch.cuda.empty_cache()  # memory of the runs before each capture


class GraphedForward:
    """See ForwardPass. Steps of one token a sequence are replayed; all others are ``eager``."""

    def __init__(
        self,
        eager: EagerForward,
        backend: GraphableBackend,
        capture: GraphCapture,
        *,
        max_num_seqs: int,
        max_context: int,
    ) -> None:
        """Capture a graph for each of ``graph_batch_sizes``; ``backend`` is that of ``eager``.

        Raises RuntimeError if the model's forward pass cannot be captured.
        """
        from tqdm import tqdm  # noqa: PLC0415 - needed on CUDA only

        self.eager = eager
        self.sizes = graph_batch_sizes(max_num_seqs)
        num_words = len(backend.decode_plan(max_num_seqs, max_context).words)
        buffer = torch.zeros(
            plan_start(max_num_seqs) + num_words, dtype=torch.int32, device=eager.device
        )
        uploads = Uploads(eager.device)
        self._graphs: dict[int, DecodeGraph] = {}
        gc.collect()
        with torch.inference_mode():
            sizes = reversed(self.sizes)  # the largest first: the others reuse its memory
            for size in tqdm(sizes, "CUDA graphs", len(self.sizes), leave=False, disable=None):
                plan = backend.decode_plan(size, max_context, buffer[plan_start(size) :])
                graph = self._graphs[size] = DecodeGraph(size, plan, buffer, uploads)
                graph.capture(eager, backend, capture)

    def __call__(self, batch: ModelInput) -> Logits:
        if not batch.is_decode or batch.num_seqs > self.sizes[-1]:
            return self.eager(batch)
        size = self.sizes[bisect_left(self.sizes, batch.num_seqs)]
        return self._graphs[size].run(batch)
