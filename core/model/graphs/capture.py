"""Capture of a function as a CUDA graph."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol, TypeAlias

import torch

from core.model.forward import Logits

Compute: TypeAlias = Callable[[], Logits]


class GraphCapture(Protocol):
    """Captures functions as graphs."""

    def capture(self, compute: Compute) -> Compute:
        """Return a function that replays ``compute`` on the same memory.

        Every replay writes its result to the same tensors. All graphs of one GraphCapture share
        their intermediate memory, so only one of them may run at a time. Raises RuntimeError if
        ``compute`` makes the host wait for the device.
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
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            with _synchronisation_raises():
                compute()
            self._stream.synchronize()
            with _no_garbage_collection():
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
            with suppress(RuntimeError):  # it only repeats the first error
                graph.capture_end()
            # After a failed capture torch 2.11 still allocates from this pool and cannot free
            # memory. Later releases end the capture themselves and raise here.
            with suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(self._stream.device_index, self._pool)  # noqa: SLF001
            # torch 2.11 begins no other capture with a pool whose only graph has failed.
            self._pool = torch.cuda.graph_pool_handle()
            raise
        return result


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
