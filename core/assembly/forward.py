"""The forward pass of a loaded model."""

from __future__ import annotations

import os

import torch

from core.attention.base import AttentionBackend
from core.contract.config import EngineConfig
from core.hook.hook import AttentionHook
from core.kernels.cpu.lent import LentCore
from core.kernels.cpu.library import kernels
from core.load.executor import Attending
from core.load.loaded_model import LoadedModel
from core.run.forward import EagerForward, ForwardPass
from core.run.graphs.capture import CUDAGraphCapture
from core.run.graphs.forward import with_graphs
from core.run.last_tokens import LastTokens
from core.run.limits import Limits
from core.run.runner import ModelRunner


def build_forward(
    model: LoadedModel,
    hook: Attending,
    attention: AttentionBackend,
    limits: Limits,
    config: EngineConfig,
) -> ForwardPass:
    """The pass to serve with: on CUDA, unless ``enforce_eager``, it replays CUDA graphs."""
    is_cuda = model.device.type == "cuda"
    last_tokens = LastTokens(limits.max_num_seqs, model.device) if is_cuda else None
    eager = EagerForward(model.module, attention, model.device, last_tokens, own=model.executor)
    if not is_cuda or config.enforce_eager:
        return eager
    assert isinstance(hook, AttentionHook)
    return with_graphs(
        eager,
        hook,
        CUDAGraphCapture(),
        max_num_seqs=limits.max_num_seqs,
        max_context=limits.max_model_len,
        max_num_tokens=limits.max_num_batched_tokens,
        num_parameters=model.num_parameters,
    )


def connect_hand_over(model: LoadedModel, runner: ModelRunner) -> None:
    """Let outputs wait for the call that computes all layers, where there is one.

    If the compute threads use every CPU, one of them leaves its own to the outputs' consumer.
    """
    executor, library = model.executor, kernels()
    if executor is None or library is None:
        return
    hand_over = runner.timer.hand_over
    executor.begin = runner.begin_layers
    hand_over.may_wait = True
    if torch.get_num_threads() >= len(os.sched_getaffinity(0)):
        hand_over.lender = executor.lent = LentCore(library)
