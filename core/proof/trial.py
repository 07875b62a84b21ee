"""Our way of a twin: from its checkpoint over the paged KV cache, as the engine drives it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from core.attention.base import AttentionBackend
from core.attention.cpu_backend import PagedCPUBackend
from core.executors.compiled import CompiledExecutor
from core.executors.layer_calls import CallBuilder
from core.kernels.cpu.library import kernels_or_reason
from core.kernels.cpu.linear import Format
from core.models.names import Names
from core.models.spec import DecoderSpec, Undescribed
from core.proof.steps import prompts, run_steps
from core.proof.twin import VOCAB_SIZE, Twin
from core.run.forward import EagerForward
from core.weights.packer import Packer
from core.weights.roles import RoleReader, SafetensorsFiles

TOLERANCE = 5e-5
"""Largest error of a logit, as a share of the largest logit."""


@torch.inference_mode()
def executor_of(
    folder: Path, described: Callable[[int], tuple[DecoderSpec, Names]], twin: Twin
) -> CompiledExecutor:
    """The executor of a twin's checkpoint, as it is ``described`` for a served length.

    Raises Undescribed.
    """
    compiled = kernels_or_reason()
    if isinstance(compiled, str):
        raise Undescribed(f"there are no compiled kernels: {compiled}")
    spec, names = described(twin.max_model_len)
    reader = RoleReader(SafetensorsFiles(folder.glob("*.safetensors")), spec, names)
    calls = CallBuilder(spec, reader, Packer(compiled, Format.FLOAT32)).build()
    executor = CompiledExecutor(compiled, calls, lambda length: described(length)[0])
    executor.fix_length(twin.max_model_len)
    return executor


def compare(executor: CompiledExecutor, expected: list[torch.Tensor]) -> str:
    """Run the steps; return what differs from the ``expected`` logits of ``reference``."""
    device = torch.device("cpu")

    def forward_over(attention: AttentionBackend) -> EagerForward:
        executor.attach(attention)
        return EagerForward(None, attention, device, own=executor)

    how = (executor.layers, prompts(VOCAB_SIZE), torch.float32, device)
    largest = torch.cat(expected).abs().max()
    for finding, rows, actual in run_steps(forward_over, PagedCPUBackend, *how):
        wanted = torch.cat([own[row] for own, row in zip(expected, rows, strict=True)])
        error = float((wanted - actual).abs().max() / largest)
        if not error < TOLERANCE:
            return f"{finding} (error {error:.2g} of the largest logit)"
    return ""
