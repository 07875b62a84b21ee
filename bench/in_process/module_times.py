"""ModuleTimes: the time of a forward pass by class of module, and inside a call of all layers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from bench.in_process.stage_times import StageTimes
from core.attention.base import AttentionBackend, KernelBackend
from core.batch.model_input import ModelInput
from core.kernels.cpu.library import kernels
from core.load.loaded_model import LoadedModel

CALIBRATION_CALLS = 1000

ONE_CALL = "layers in one call"
"""The name under which the call that computes all layers is timed."""


class ModuleTimes:
    """Sums the time of a model's modules by their class, each without the modules inside it.

    Attention is a part of its own: ``attention plan`` once a step, ``attention`` once a layer.
    Where all layers are one call of the kernel, no module is called for them: then that call is
    ONE_CALL, and ``stages`` has what it measures. Core thread only, unless the engine is idle.
    """

    def __init__(self) -> None:
        self.clock: Callable[[], int] = time.perf_counter_ns
        self.nanoseconds: dict[str, int] = {}
        self.calls: dict[str, int] = {}
        self.stages: StageTimes | None = None
        self._stack: list[_Call] = []

    def instrument(self, model: LoadedModel, attention: AttentionBackend) -> AttentionBackend:
        """Hook every module of a model; return the attention with timers around its calls."""
        executor, library = model.executor, kernels()
        if executor is None:
            for module in model.module.modules():
                self.hook(module, type(module).__name__)
        elif library is not None:
            self.stages = StageTimes(library)
            executor.times = _OneCall(self, self.stages.address)
        if isinstance(attention, KernelBackend):
            return _TimedKernel(attention, self)
        return _TimedAttention(attention, self)

    def enter(self, name: str) -> None:
        """Begin a call."""
        self._stack.append(_Call(name, self.clock()))

    def leave(self) -> None:
        """End the innermost call."""
        call = self._stack.pop()
        spent = self.clock() - call.start
        self.nanoseconds[call.name] = self.nanoseconds.get(call.name, 0) + spent - call.inner
        self.calls[call.name] = self.calls.get(call.name, 0) + 1
        if self._stack:
            self._stack[-1].inner += spent

    def hook(self, module: nn.Module, name: str) -> None:
        """Time every call of a module."""
        module.register_forward_pre_hook(lambda _module, _args: self.enter(name))
        module.register_forward_hook(lambda _module, _args, _out: self.leave(), always_call=True)


class _Call:
    """A call that has not returned, and the nanoseconds of the calls inside it."""

    __slots__ = ("inner", "name", "start")

    def __init__(self, name: str, start: int) -> None:
        self.name = name
        self.start = start
        self.inner = 0


class _OneCall:
    """Surrounds the call that computes all layers."""

    def __init__(self, times: ModuleTimes, address: int) -> None:
        self._times = times
        self._address = address

    def __enter__(self) -> int:
        self._times.enter(ONE_CALL)
        return self._address

    def __exit__(self, *_: object) -> None:
        self._times.leave()


class _TimedAttention:
    """An attention backend whose calls are timed."""

    def __init__(self, attention: AttentionBackend, times: ModuleTimes) -> None:
        self._attention = attention
        self._times = times

    def plan(self, batch: ModelInput) -> None:
        self._times.enter("attention plan")
        try:
            self._attention.plan(batch)
        finally:
            self._times.leave()

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int
    ) -> torch.Tensor:
        self._times.enter("attention")
        try:
            return self._attention.forward(query, key, value, layer)
        finally:
            self._times.leave()


class _TimedKernel(_TimedAttention):
    """The same, of a backend that the call of all layers calls without it."""

    def __init__(self, attention: KernelBackend, times: ModuleTimes) -> None:
        super().__init__(attention, times)
        self.kernel_calls = attention.kernel_calls


def hook_seconds() -> float:
    """Measure the cost of timing one call of a module."""
    plain: Any = nn.Identity()
    hooked = nn.Identity()
    ModuleTimes().hook(hooked, "hooked")
    costs = []
    for module in (plain, hooked):
        start = time.perf_counter()
        for _ in range(CALIBRATION_CALLS):
            module(None)
        costs.append(time.perf_counter() - start)
    return max(0.0, costs[1] - costs[0]) / CALIBRATION_CALLS
