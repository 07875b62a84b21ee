"""Decode steps as recordings: what a forward pass tells the device is told again in one call.

A CUDA graph repeats the same operations on the same memory. So there is one for each of some batch
sizes, a step takes the next larger one, and everything of a step that varies lies in one buffer
that never moves: token ids, positions and the attention's plan, written by one copy. Rows beyond
the batch are padding: token 0 at position 0, which attention gives no slot to write to and nothing
to read.
"""

from __future__ import annotations

import gc
import logging
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch

from core.attention.base import AttentionBackend
from core.model.forward import EagerForward, ForwardPass, Logits
from core.model_input import ModelInput
from core.pinned import Uploads, WordArray
from core.sampling.groups import best_tokens

logger = logging.getLogger("roseinfer.core")

Compute: TypeAlias = Callable[[], Logits]

LAUNCHES_BYTES = 16 * 2**20
"""What a driver takes for a graph of a thousand launches, generously."""

_ALIGN = 4  # words: 16 bytes


class GraphRecorder(Protocol):
    """Records what a function tells the device."""

    def record(self, compute: Compute) -> Compute:
        """Return what tells the device the same again, on the same memory.

        The result lies where that of the recording lies, each time. The recordings of one
        recorder share memory for everything in between, so only one may run at a time. Raises
        RuntimeError if the function waits for the device.
        """


class DecodePlan(Protocol):
    """An attention backend's plan for single tokens of a fixed number of rows."""

    @property
    def words(self) -> torch.Tensor:
        """Int32 on the device: all that changes from step to step, and nothing else does."""

    def fill(self, batch: ModelInput, words: WordArray) -> int:
        """Write a step into host memory, from host memory; the words that are to be copied.

        Rows beyond the batch write nothing, and what they read is harmless.
        """


@runtime_checkable
class GraphableBackend(AttentionBackend, Protocol):
    """A backend whose decodes can be recorded."""

    def decode_plan(
        self, num_rows: int, max_context: int, words: torch.Tensor | None = None
    ) -> DecodePlan:
        """Return a plan for contexts of up to so many tokens, over ``words`` if given."""

    def use(self, plan: DecodePlan) -> None:
        """Make ``plan`` what ``forward`` computes, whatever its words are by then."""


class CUDAGraphRecorder:
    """CUDA graphs with one memory pool. Core thread only.

    What is recorded first should need most memory. Every function is run once before, so that
    kernels are compiled and libraries have their workspaces, and so that one that waits for the
    device is found out: a recording that fails may leave torch's allocator in disorder.
    """

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, compute: Compute) -> Compute:
        """See GraphRecorder."""
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            with _no_waiting():
                compute()
            self._stream.synchronize()
            with _no_collection():
                result = self._capture(graph, compute)
        torch.cuda.current_stream().wait_stream(self._stream)

        def replay() -> Logits:
            graph.replay()
            return result

        return replay

    def _capture(self, graph: torch.cuda.CUDAGraph, compute: Compute) -> Logits:
        try:
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            result = compute()
            graph.capture_end()
        except BaseException:
            with suppress(RuntimeError):  # it says no more than what is raised already
                graph.capture_end()
            # torch 2.11 goes on to believe that this pool is being recorded into, and then
            # cannot free memory; a later one knows better, and says so
            with suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(self._stream.device_index, self._pool)  # noqa: SLF001
            raise
        return result


@contextmanager
def _no_waiting() -> Iterator[None]:
    """Within, what makes the host wait for the device raises RuntimeError, as far as torch sees."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@contextmanager
def _no_collection() -> Iterator[None]:
    """Within, no garbage is looked for: what it frees could be no part of a recording."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class RerunRecorder:
    """Runs the function itself again, and puts its result where the first one was.

    For devices without graphs: so the use of recordings can be tested on any.
    """

    def record(self, compute: Compute) -> Compute:
        """See GraphRecorder."""
        first = compute()

        def rerun() -> Logits:
            again = compute()
            first.values.copy_(again.values)
            if first.best is not None and again.best is not None:
                first.best.copy_(again.best)
            return first

        return rerun


def bucket_sizes(max_num_seqs: int) -> list[int]:
    """Batch sizes that are recorded: few, with 7 rows of padding at most, above 128 an eighth."""
    sizes, size = [], 1
    while size < max_num_seqs:
        sizes.append(size)
        size += max(min(8, size), (1 << size.bit_length()) // 16)
    return [*sizes, max_num_seqs]


def recorded(
    eager: EagerForward, recorder: GraphRecorder, *, max_num_seqs: int, max_context: int
) -> ForwardPass:
    """The pass with its decode steps recorded, or as it is if model or attention do not allow it.

    ``max_context`` is the longest context of a sequence in tokens.
    """
    backend = eager.backend
    if not isinstance(backend, GraphableBackend):
        return eager
    try:
        return GraphedForward(
            eager, backend, recorder, max_num_seqs=max_num_seqs, max_context=max_context
        )
    except RuntimeError as error:  # the pass waits for the device, or there is no memory left
        reason = str(error).strip().partition("\n")[0]
        logger.warning("decode steps are not recorded: %s", reason)
        return eager
    finally:
        torch.cuda.empty_cache()  # what the runs before the recordings took


def recorded_nbytes(*, max_num_seqs: int, vocab_size: int, dtype: torch.dtype) -> int:
    """Bytes that all recordings keep, about: each its logits, and the driver its launches."""
    sizes = bucket_sizes(max_num_seqs)
    return sum(sizes) * vocab_size * dtype.itemsize + len(sizes) * LAUNCHES_BYTES


class GraphedForward:
    """Steps of single tokens by recordings, all others by the eager pass. See ForwardPass."""

    def __init__(
        self,
        eager: EagerForward,
        backend: GraphableBackend,
        recorder: GraphRecorder,
        *,
        max_num_seqs: int,
        max_context: int,
    ) -> None:
        """Record everything; see ``bucket_sizes``. The backend is also that of the eager pass.

        Raises RuntimeError if the model's pass cannot be recorded.
        """
        from tqdm import tqdm  # noqa: PLC0415 - only where there is a device to show it for

        self.eager = eager
        self.sizes = bucket_sizes(max_num_seqs)
        num_words = len(backend.decode_plan(max_num_seqs, max_context).words)
        buffer = torch.zeros(
            _plan_start(max_num_seqs) + num_words, dtype=torch.int32, device=eager.device
        )
        uploads = Uploads(eager.device)
        self._decodes: dict[int, _Decode] = {}
        gc.collect()
        with torch.inference_mode():
            sizes = reversed(self.sizes)  # the largest first: the others fit into its memory
            for size in tqdm(sizes, "recording", len(self.sizes), leave=False, disable=None):
                plan = backend.decode_plan(size, max_context, buffer[_plan_start(size) :])
                decode = self._decodes[size] = _Decode(size, plan, buffer, uploads)
                decode.record(eager, backend, recorder)

    def __call__(self, batch: ModelInput) -> Logits:
        """See ForwardPass."""
        if not batch.is_decode or batch.num_seqs > self.sizes[-1]:
            return self.eager(batch)
        size = self.sizes[bisect_left(self.sizes, batch.num_seqs)]
        return self._decodes[size].run(batch)


def _plan_start(num_rows: int) -> int:
    """Where the plan begins in the buffer, behind token ids and positions."""
    return -(-2 * num_rows // _ALIGN) * _ALIGN


class _Decode:
    """The recording of one batch size."""

    def __init__(
        self, num_rows: int, plan: DecodePlan, buffer: torch.Tensor, uploads: Uploads
    ) -> None:
        """``buffer`` is int32 on the device; the words of the plan are its end."""
        self._num_rows = num_rows
        self._plan = plan
        self._buffer = buffer
        self._uploads = uploads
        self._replay: Compute | None = None

    def record(
        self, eager: EagerForward, backend: GraphableBackend, recorder: GraphRecorder
    ) -> None:
        """Record the eager pass over nothing but padding."""
        num_rows = self._num_rows
        token_ids, positions = self._buffer[:num_rows], self._buffer[num_rows : 2 * num_rows]

        def compute() -> Logits:
            backend.use(self._plan)
            ids = token_ids
            if eager.last_tokens is not None:
                ids = eager.last_tokens.resolve(ids)
            values = eager.compute(ids, positions, 0)
            return Logits(values, best_tokens(values))

        self._upload(_empty_batch())
        self._replay = recorder.record(compute)

    def run(self, batch: ModelInput) -> Logits:
        """Compute a step of at most ``num_rows`` single tokens."""
        assert self._replay is not None
        self._upload(batch)
        logits = self._replay()
        assert logits.best is not None
        return Logits(logits.values[: batch.num_seqs], logits.best[: batch.num_seqs])

    def _upload(self, batch: ModelInput) -> None:
        """All that the recording reads of a step, in one copy."""
        num_seqs, num_rows, start = batch.num_seqs, self._num_rows, _plan_start(self._num_rows)
        words = self._uploads.take(len(self._buffer))
        words[: 2 * num_rows] = 0
        words[:num_seqs] = batch.token_ids.numpy()
        words[num_rows : num_rows + num_seqs] = batch.positions.numpy()
        num_words = start + self._plan.fill(batch, words[start:])
        self._uploads.send(num_words, self._buffer)


def _empty_batch() -> ModelInput:
    """A step of nobody."""
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
