"""prove: whether a model's row, its names and the compiled kernels compute what transformers does.

A tiny twin of the configuration is made by transformers, whose logits are the oracle. The twin then
goes our way, from its files over the paged KV cache, as the engine drives it: see
``core.model.proof.steps``.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from core.attention.base import AttentionBackend
from core.attention.cpu_backend import PagedCPUBackend
from core.executors.compiled import CompiledExecutor
from core.executors.layer_calls import CallBuilder
from core.executors.supported import check_supported
from core.kernels.cpu.library import kernels_or_reason
from core.kernels.cpu.linear import Format
from core.model.forward import EagerForward
from core.model.proof.steps import prompts, run_steps
from core.models.families import describe
from core.models.names import Names
from core.models.spec import DecoderSpec, Undescribed
from core.proof.reference import reference
from core.proof.twin import VOCAB_SIZE, Twin, twins_of
from core.proof.verdict import Verdict, key_of, recall, remember
from core.weights.packer import Packer
from core.weights.roles import RoleReader, SafetensorsFiles

logger = logging.getLogger("roseinfer.core")

TOLERANCE = 5e-5
"""Largest error of a logit, as a share of the largest logit."""


def prove(
    values: Mapping[str, Any], *, repeats: bool = False, folder: Path | None = None
) -> Verdict:
    """The verdict on a ``config.json``, remembered if it can be and ``repeats`` is not set.

    A new one is remembered in ``folder``, else in the user's cache, unless something failed that
    need not fail again. Core thread only. A remembered one needs no import of transformers.
    """
    start = time.perf_counter()
    try:
        twins = twins_of(values)
        check_supported(describe(twins[0].values, twins[0].max_model_len)[0])
        key = key_of(twins[0].values)
        if not repeats and (known := recall(key)) is not None:
            return known
        kernels_or_reason()  # they may have to be compiled, which is no part of the proof
        start = time.perf_counter()
        reason = next(filter(None, map(_difference, twins)), "")
    except Undescribed as error:
        return Verdict(False, str(error), seconds=time.perf_counter() - start)
    except Exception as error:  # noqa: BLE001 - any error of transformers' code
        logger.debug("a twin was not proved", exc_info=error)
        reason = f"its twin was not computed: {type(error).__name__}"
        return Verdict(False, reason, seconds=time.perf_counter() - start)
    verdict = Verdict(not reason, reason, seconds=time.perf_counter() - start)
    remember(key, verdict, folder)
    return verdict


def _difference(twin: Twin) -> str:
    """What is not as in transformers; empty if all is. Raises Undescribed, and any other error."""
    with tempfile.TemporaryDirectory() as folder:
        expected = reference(twin.values, Path(folder))
        executor = executor_of(Path(folder), lambda length: describe(twin.values, length), twin)
    return compare(executor, expected)


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
