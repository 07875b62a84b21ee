"""Capture of a function as a CUDA graph."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Protocol, TypeAlias

import torch

from core.batch.logits import Logits
from core.run.graphs.unowned import unowned
from core.system.private_names import end_allocation_to_pool

Compute: TypeAlias = Callable[[], Logits]

Work: TypeAlias = Callable[..., object]
"""What runs between two graphs; called with the tensors of its cut."""


class Cut(Protocol):
    """Ends a graph in the middle of a capture, and begins the next one."""

    def __call__(self, work: Work, *tensors: torch.Tensor) -> None:
        """Have every replay call ``work(*tensors)`` here. The call may launch anything."""


ComputeInPieces: TypeAlias = Callable[[Cut], Logits]


class GraphCapture(Protocol):
    """Captures functions as graphs."""

    def capture(self, compute: Compute) -> Compute:
        """Return a function that replays ``compute`` on the same memory.

        Every replay writes its result to the same tensors. All graphs of one GraphCapture share
        their intermediate memory, so only one of them may run at a time. Raises RuntimeError if
        ``compute`` makes the host wait for the device.
        """

    def capture_pieces(self, compute: ComputeInPieces) -> Compute:
        """As ``capture``, but what ``compute`` passes to its Cut runs between graphs.

        The work is called in replays only. Its tensors and the result are in the graphs' memory
        and are valid until the next replay.
        """


class CUDAGraphCapture:
    """CUDA graphs with one memory pool. Core thread only.

    Capture the function that needs most memory first. Every function runs once before its capture.
    That run compiles kernels, allocates library workspaces, and finds functions that wait for the
    device: a failed capture may corrupt the state of torch's allocator.
    """

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def capture(self, compute: Compute) -> Compute:
        with self._on_own_stream(compute):
            graph = _OpenGraph(self._pool)
            with self._closed_on_failure(graph):
                result = compute()
                replay_graph = graph.close()

        def replay() -> Logits:
            replay_graph()
            return result

        return replay

    def capture_pieces(self, compute: ComputeInPieces) -> Compute:
        steps: list[Callable[[], object]] = []
        with self._on_own_stream(lambda: compute(lambda *_: None)):
            graph = _OpenGraph(self._pool)

            def cut(work: Work, *tensors: torch.Tensor) -> None:
                steps.append(graph.close())
                steps.append(partial(work, *map(unowned, tensors)))
                graph.open()

            with self._closed_on_failure(graph):
                values = compute(cut).values
                steps.append(graph.close())
        result = Logits(unowned(values))

        def replay() -> Logits:
            for step in steps:
                step()
            return result

        return replay

    @contextmanager
    def _on_own_stream(self, compute: Callable[[], object]) -> Iterator[None]:
        """Run ``compute``, then the block, which captures it."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            with _synchronisation_raises():
                compute()
            self._stream.synchronize()
            with _no_garbage_collection():
                yield
        torch.cuda.current_stream().wait_stream(self._stream)

    @contextmanager
    def _closed_on_failure(self, graph: _OpenGraph) -> Iterator[None]:
        graph.open()
        try:
            yield
        except BaseException:
            with suppress(RuntimeError):  # it only repeats the first error
                graph.close()
            end_allocation_to_pool(self._stream.device_index, self._pool)
            # torch 2.11 begins no other capture with a pool whose only graph has failed.
            self._pool = torch.cuda.graph_pool_handle()
            raise


class _OpenGraph:
    """The graph that is being captured. ``pool`` is a handle of torch's."""

    _graph: torch.cuda.CUDAGraph

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def open(self) -> None:
        self._graph = torch.cuda.CUDAGraph()
        self._graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")

    def close(self) -> Callable[[], object]:
        """End the capture; return what replays the graph."""
        self._graph.capture_end()
        replay: Callable[[], object] = self._graph.replay
        return replay


@contextmanager
def _synchronisation_raises() -> Iterator[None]:
    """Raise RuntimeError in the block if torch makes the host wait for the device."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the mode warns that it is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disable garbage collection: CUDA calls of a destructor would break the capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
