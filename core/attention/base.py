"""The protocols of an attention backend, and the registry of backends."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch

from core.batch.model_input import ModelInput
from core.contract.errors import ModelLoadError
from core.kv.layer_spec import LayerSpec
from core.kv.storage import KVStorage
from core.system.pinned import WordArray


class AttentionBackend(Protocol):
    """Computes causal attention of packed queries over the paged KV cache. Core thread only."""

    def plan(self, batch: ModelInput) -> None:
        """Prepare what all layers of this step share."""

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int
    ) -> torch.Tensor:
        """Write this step's keys and values to the cache, then attend.

        ``query`` is ``[num_tokens, num_heads, head_dim]``, ``key`` and ``value`` are
        ``[num_tokens, num_kv_heads, head_dim]``. Returns ``[num_tokens, num_heads, value_dim]``.

        All writes happen before any read: a sequence may read blocks that another sequence of the
        same step fills.
        """


class DecodePlan(Protocol):
    """A plan for decode steps of a fixed number of rows, in tensors that never move.

    A CUDA graph captures the launches of one plan and replays them over new content.
    """

    @property
    def words(self) -> torch.Tensor:
        """Device memory, int32. It holds everything that changes from step to step."""

    def fill(self, batch: ModelInput, words: WordArray) -> int:
        """Write a step to ``words``, in host memory; return the number of words to copy.

        Reads only the host part of ``batch``. Rows beyond the batch are padding: they write to no
        slot, and their attention is finite.
        """


@runtime_checkable
class GraphableBackend(AttentionBackend, Protocol):
    """A backend for CUDA graphs: its decode steps are captured, others run between graphs."""

    def decode_plan(
        self, num_rows: int, max_context: int, words: torch.Tensor | None = None
    ) -> DecodePlan:
        """Return a plan for ``num_rows`` contexts of up to ``max_context`` tokens each.

        The plan uses ``words``, int32 on the device, or allocates its own.
        """

    def use(self, plan: DecodePlan) -> None:
        """Make ``forward`` compute ``plan``, with the content that its words have by then."""

    def forward_into(
        self,
        output: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        layer: int,
    ) -> None:
        """Compute ``forward`` into ``output``, contiguous memory of the shape that it returns."""


@runtime_checkable
class KernelBackend(AttentionBackend, Protocol):
    """A backend that is a kernel of the CPU library, which a kernel of whole layers can call."""

    @property
    def kernel_calls(self) -> Sequence[int] | None:
        """The address of each layer's AttentionCall, without queries, keys, values and output.

        They are valid while the backend lives, and ``plan`` fills in the step. None if a layer has
        another kind of attention.
        """


class BackendFactory(Protocol):
    """Builds a backend over a storage. Usually the class itself."""

    def __call__(self, storage: KVStorage, layers: Sequence[LayerSpec]) -> AttentionBackend: ...


@runtime_checkable
class MeasuredFactory(BackendFactory, Protocol):
    """A factory that knows what a step of its backend takes of a CPU's memory."""

    def step_nbytes(
        self, layers: Sequence[LayerSpec], num_tokens: int, num_seqs: int, context: int
    ) -> int:
        """Most bytes that a step takes besides queries, keys, values and output.

        The step has at most ``num_tokens`` tokens of ``num_seqs`` sequences, each of at most
        ``context`` tokens.
        """


_BACKENDS = {
    "cpu": ("core.attention.cpu_backend", "PagedCPUBackend"),
    "torch": ("core.attention.torch_backend", "PagedTorchBackend"),
    "triton": ("core.attention.triton.backend", "TritonBackend"),
}


def backend_factory(name: str) -> BackendFactory:
    """Import a backend by name. Raises ModelLoadError if it is unknown or cannot be imported."""
    if name not in _BACKENDS:
        known = ", ".join(sorted(_BACKENDS))
        raise ModelLoadError(f"unknown attention backend {name!r}; choose auto, {known}")
    module, attribute = _BACKENDS[name]
    try:
        factory: BackendFactory = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ModelLoadError(
            f"attention backend {name!r} needs a package that is not installed: {error.name}"
        ) from error
    return factory
