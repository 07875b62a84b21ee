"""PiecewiseForward: steps with prompt chunks, replayed but for their attention.

Attention depends on the lengths of the sequences, so it cannot be captured. Everything between two
attention calls depends only on the number of tokens. It is captured for a few numbers of tokens; a
step is padded to the next one. Launching one graph a layer takes the host a fraction of the time of
running the model's code.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial

import numpy as np
import torch

from core.attention.base import GraphableBackend
from core.batch.logits import Logits
from core.batch.model_input import ModelInput
from core.hook.hook import AttentionHook
from core.run.forward import EagerForward, ForwardPass
from core.run.graphs.capture import Compute, Cut, GraphCapture
from core.system.pinned import Uploads


class PiecewiseForward:
    """See ForwardPass. Core thread only.

    ``inner`` computes the steps that fit no capture, and those of one token a sequence.
    """

    def __init__(
        self,
        inner: ForwardPass,
        backend: GraphableBackend,
        hook: AttentionHook,
        capture: GraphCapture,
        *,
        sizes: list[int],
        max_num_logits: int,
    ) -> None:
        """Capture a step of each of ``sizes`` tokens, ascending; ``hook`` routes to ``backend``.

        Raises RuntimeError if the model's forward pass cannot be captured.
        """
        from tqdm import tqdm  # noqa: PLC0415 - needed on CUDA only

        self._inner = inner
        self.eager = inner.eager
        self.sizes = sizes
        self._backend = backend
        self._max_num_logits = max_num_logits
        self._num_tokens = 0
        device = self.eager.device
        self._uploads, self._step_uploads = Uploads(device), Uploads(device)
        num_words = _num_words(sizes[-1], max_num_logits)
        self._words = torch.zeros(num_words, dtype=torch.int64, device=device)
        self._replays: dict[int, Compute] = {}
        try:
            with torch.inference_mode():
                order = reversed(sizes)  # the largest first: the others reuse its memory
                for size in tqdm(order, "prompt graphs", len(sizes), leave=False, disable=None):
                    compute = partial(self._compute, hook, self.eager, size)
                    self._replays[size] = capture.capture_pieces(compute)
        finally:
            hook.attach(backend)

    def __call__(self, batch: ModelInput) -> Logits:
        size = self._size_of(batch)
        if size is None:
            return self._inner(batch)
        self._num_tokens = len(batch.token_ids)
        self._upload(batch, size)
        self._backend.plan(batch.on(self.eager.device, self._step_uploads))
        return Logits(self._replays[size]().values[: len(batch.logits_indices)])

    def _size_of(self, batch: ModelInput) -> int | None:
        """The number of tokens of the capture that a step is padded to, or None."""
        num_tokens = len(batch.token_ids)
        if batch.is_decode or num_tokens > self.sizes[-1]:
            return None
        size = self.sizes[bisect_left(self.sizes, num_tokens)]
        fits = len(batch.logits_indices) <= _num_logits(size, self._max_num_logits)
        return size if fits else None

    def _parts(self, size: int) -> tuple[slice, slice, slice]:
        """The places of token ids, positions and indices of logits in the int64 words."""
        end = _num_words(size, self._max_num_logits)
        return slice(0, size), slice(size, 2 * size), slice(2 * size, end)

    def _upload(self, batch: ModelInput, size: int) -> None:
        """Copy the step, padded with token 0 at position 0, in one transfer."""
        end = _num_words(size, self._max_num_logits)
        words = self._uploads.take(2 * end)[: 2 * end].view(np.int64)
        words[:] = 0
        inputs = batch.token_ids, batch.positions, batch.logits_indices
        for part, values in zip(self._parts(size), inputs, strict=True):
            words[part.start : part.start + len(values)] = values.numpy()
        self._uploads.send(2 * end, self._words.view(torch.int32))

    def _compute(self, hook: AttentionHook, eager: EagerForward, size: int, cut: Cut) -> Logits:
        """One pass over the words, cut at each attention call."""

        def attend(
            query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int
        ) -> torch.Tensor:
            spec = hook.layers[layer]
            output = query.new_empty(query.shape[0], spec.num_heads, spec.value_dim)
            cut(partial(self._attend, layer), output, query, key, value)
            return output

        hook.install(attend)
        token_ids, positions, indices = (self._words[part] for part in self._parts(size))
        if eager.last_tokens is not None:
            token_ids = eager.last_tokens.resolve(token_ids)
        return Logits(eager.compute(token_ids, positions, indices))

    def _attend(
        self,
        layer: int,
        output: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
    ) -> None:
        """Compute one layer's attention. Rows of padding keep what they held: nobody reads it."""
        n = self._num_tokens
        self._backend.forward_into(output[:n], query[:n], key[:n], value[:n], layer)


def _num_words(size: int, max_num_logits: int) -> int:
    return 2 * size + _num_logits(size, max_num_logits)


def _num_logits(size: int, max_num_logits: int) -> int:
    """Logits of a step of ``size`` tokens: not all, which would make their indices pointless."""
    return min(size - 1, max_num_logits)
