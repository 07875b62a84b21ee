"""Run steps on the meta device, and record what would synchronise with a CUDA device.

The kernels are replaced by checks of their arguments. Reading a value of a meta tensor fails. What
would only make the host wait on CUDA is found by inspecting every operation:

- a copy between host and device that is not ``non_blocking``,
- an operation on tensors of both host and device,
- an assignment of a Python number through index tensors, which copies it to the device first.
"""

from __future__ import annotations

import traceback
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from core.fusion.rotary import FUNCTION
from core.kernels.triton import draw, gated, norm, rotary
from core.kernels.triton.attention import chunk, decode, merge, write
from core.kernels.triton.head_norm import HeadNorm
from core.system.pinned import Download

META = torch.device("meta")

READ_VALUE = 7.0
"""Every value that is read back from the device."""

KERNELS = {
    write: "_write_kernel",
    decode: "_decode_kernel",
    merge: "_merge_kernel",
    chunk: "_chunk_kernel",
    norm: "_rms_norm_kernel",
    gated: "_gated_kernel",
    rotary: "_rotary_kernel",
    draw: "_draw_kernel",
}

MOST_PROGRAMS = 65_535
"""Largest size of the second dimension of a grid."""


class DeviceTrace:
    """What steps did on the device."""

    def __init__(self) -> None:
        self.syncs: set[str] = set()
        """Operations that make the host wait, and the lines of core that call them."""
        self.variants: defaultdict[str, set[tuple[object, ...]]] = defaultdict(set)
        """Of each kernel: the sets of arguments that Triton compiles separately."""


@contextmanager
def traced() -> Iterator[DeviceTrace]:
    """Trace the block. Kernels are checks, and every value read from the device is READ_VALUE."""
    trace = DeviceTrace()
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        for module, name in KERNELS.items():
            patch.setattr(module, name, _Kernel(getattr(module, name), trace))
        patch.setattr(Download, "_landed", lambda download: _read_values(download._host))
        stack.enter_context(_Operations(trace))
        stack.enter_context(_Assignments(trace))
        yield trace


def move(thing: object, dtype: torch.dtype) -> None:
    """Move every tensor of a module to the meta device, registered or not."""
    _move(thing, dtype, set())


def _move(thing: Any, dtype: torch.dtype, seen: set[int]) -> None:
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, nn.Module):
        if not list(thing.children()):
            thing.to(META)
        for parameter in thing.parameters(recurse=False):
            parameter.data = parameter.data.to(META, dtype)
        for child in thing.children():
            _move(child, dtype, seen)
    for held in _norms_of(thing):
        for name in ("query_weight", "key_weight"):
            object.__setattr__(held, name, getattr(held, name).to(META, dtype))
    for name, value in list(vars(thing).items()):
        if isinstance(value, torch.Tensor):
            setattr(thing, name, value.to(META, dtype))
        elif type(value).__module__.startswith("core.") and hasattr(value, "__dict__"):
            _move(value, dtype, seen)


def _norms_of(module: Any) -> list[HeadNorm]:
    """Head norms in the closure of a RoPE function that replaced the module's own."""
    forward = getattr(vars(module).get("forward"), "__func__", None)
    rotation = getattr(forward, "__globals__", {}).get(FUNCTION)
    cells = getattr(rotation, "__closure__", None) or ()
    return [c.cell_contents for c in cells if isinstance(c.cell_contents, HeadNorm)]


class _Kernel:
    """Stands for a kernel: records what Triton would compile, launches nothing."""

    def __init__(self, kernel: Any, trace: DeviceTrace) -> None:
        self._name = kernel.fn.__name__
        self._annotations = kernel.fn.__annotations__
        self._names = kernel.arg_names
        self._variants = trace.variants[self._name]
        # the interpreter drops the arguments of the decorator
        self._plain = {"num_rows"} if self._name in {"_decode_kernel", "_draw_kernel"} else set()

    def __getitem__(self, grid: tuple[int, ...]):
        assert all(number > 0 for number in grid)
        assert all(number <= MOST_PROGRAMS for number in grid[1:])
        return self._launch

    def _launch(self, *args: Any, **named: Any) -> None:
        given = dict(zip(self._names, args, strict=False)) | named
        self._variants.add(tuple(self._variant(name, value) for name, value in given.items()))

    def _variant(self, name: str, value: Any) -> object:
        """The name, and what the compiled code depends on."""
        if isinstance(value, torch.Tensor):
            assert value.device.type == META.type, f"{self._name}: {name} is on the host"
            start = value.storage_offset() * value.itemsize
            return name, value.dtype, start % 16 == 0
        is_number = isinstance(value, int) and "constexpr" not in str(
            self._annotations.get(name, "constexpr")
        )
        if name in self._names and "constexpr" not in str(self._annotations.get(name, "")):
            if isinstance(value, float) or name in self._plain:
                return name
            if isinstance(value, int):
                return name, value == 1, value % 16 == 0
        assert not is_number
        return name, str(value)


class _Operations(TorchDispatchMode):
    def __init__(self, trace: DeviceTrace) -> None:
        super().__init__()
        self._trace = trace

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        result = func(*args, **kwargs)
        kinds = {tensor.device.type for tensor in tensors}
        if name in {"to", "_to_copy"}:
            kinds.add(result.device.type)
        if len(kinds) > 1:
            is_copy = name in {"to", "_to_copy", "copy_"}
            is_async = kwargs.get("non_blocking") or (name == "copy_" and args[2:] == (True,))
            if not (is_copy and is_async):
                self._trace.syncs.add(f"{name} at {_place()}")
        return result


class _Assignments(TorchFunctionMode):
    def __init__(self, trace: DeviceTrace) -> None:
        super().__init__()
        self._trace = trace

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__setitem__ and args[0].device.type == META.type:
            _, index, value = args
            has_indices = any(isinstance(x, torch.Tensor | list) for x in tree_leaves(index))
            if has_indices and not isinstance(value, torch.Tensor):
                self._trace.syncs.add(f"assignment at {_place()}")
        return func(*args, **(kwargs or {}))


def _read_values(there: torch.Tensor) -> torch.Tensor:
    return torch.full(there.shape, READ_VALUE).to(there.dtype)


def _place() -> str:
    frames = [f for f in traceback.extract_stack() if "/core/" in f.filename]
    frames = [f for f in frames if "/tests/" not in f.filename]
    return " < ".join(f"{f.filename.partition('/core/')[2]}:{f.lineno}" for f in frames[:-3:-1])
