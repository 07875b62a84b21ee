"""GraphedForward: a forward pass that replays decode steps."""

from __future__ import annotations

import gc
import logging
from bisect import bisect_left

import torch

from core.attention.base import GraphableBackend
from core.batch.logits import Logits
from core.batch.model_input import ModelInput
from core.hook.hook import AttentionHook
from core.run.forward import EagerForward, ForwardPass
from core.run.graphs.capture import GraphCapture
from core.run.graphs.decode import DecodeGraph, plan_start
from core.run.graphs.pieces import PiecewiseForward
from core.run.graphs.sizes import graph_batch_sizes, piece_sizes
from core.system.pinned import Uploads

logger = logging.getLogger("roseinfer.core")


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
