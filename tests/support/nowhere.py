"""A device that computes nothing (meta), and a watch over what the host makes wait for it.

Whole steps run there, with the kernels replaced by checks of what they are given. What a number
on the device would have to be known for fails; what would only be slow on CUDA is found by
looking at every operation:

- a copy between host and device that is not ``non_blocking``,
- a tensor of the host among those of the device,
- a number of the host written through indices, which is copied to the device first.
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
from core.pinned import Download

NOWHERE = torch.device("meta")

ANSWER = 7.0
"""What every number is that comes back from the device."""

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
"""Of the second dimension of a grid."""


class Watch:
    """What was seen of steps."""

    def __init__(self) -> None:
        self.waits: set[str] = set()
        """Operations that make the host wait, and the lines of ours that told them."""
        self.variants: defaultdict[str, set[tuple[object, ...]]] = defaultdict(set)
        """Of each kernel what Triton compiles anew for."""


@contextmanager
def watched() -> Iterator[Watch]:
    """Watch what is done in the block, where kernels are checks and every answer is ANSWER."""
    watch = Watch()
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        for module, name in KERNELS.items():
            patch.setattr(module, name, _Kernel(getattr(module, name), watch))
        patch.setattr(Download, "tolist", lambda download: _answers(download._host))
        stack.enter_context(_Operations(watch))
        stack.enter_context(_Assignments(watch))
        yield watch


def move(thing: object, dtype: torch.dtype) -> None:
    """Put every tensor of a module there, those too that it does not know of."""
    _move(thing, dtype, set())


def _move(thing: Any, dtype: torch.dtype, seen: set[int]) -> None:
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, nn.Module):
        if not list(thing.children()):
            thing.to(NOWHERE)
        for parameter in thing.parameters(recurse=False):
            parameter.data = parameter.data.to(NOWHERE, dtype)
        for child in thing.children():
            _move(child, dtype, seen)
    for held in _norms_of(thing):
        for name in ("query_weight", "key_weight"):
            object.__setattr__(held, name, getattr(held, name).to(NOWHERE, dtype))
    for name, value in list(vars(thing).items()):
        if isinstance(value, torch.Tensor):
            setattr(thing, name, value.to(NOWHERE, dtype))
        elif type(value).__module__.startswith("core.") and hasattr(value, "__dict__"):
            _move(value, dtype, seen)


def _norms_of(module: Any) -> list[HeadNorm]:
    """What a rotation that was put into a module's own code holds."""
    forward = getattr(vars(module).get("forward"), "__func__", None)
    rotation = getattr(forward, "__globals__", {}).get(FUNCTION)
    cells = getattr(rotation, "__closure__", None) or ()
    return [c.cell_contents for c in cells if isinstance(c.cell_contents, HeadNorm)]


class _Kernel:
    """Stands for a kernel: notes what Triton would compile, launches nothing."""

    def __init__(self, kernel: Any, watch: Watch) -> None:
        self._name = kernel.fn.__name__
        self._annotations = kernel.fn.__annotations__
        self._names = kernel.arg_names
        self._variants = watch.variants[self._name]
        # the interpreter forgets what the decorator was told
        self._plain = {"num_rows"} if self._name in {"_decode_kernel", "_draw_kernel"} else set()

    def __getitem__(self, grid: tuple[int, ...]):
        assert all(number > 0 for number in grid)
        assert all(number <= MOST_PROGRAMS for number in grid[1:])
        return self._launch

    def _launch(self, *args: Any, **named: Any) -> None:
        given = dict(zip(self._names, args, strict=False)) | named
        self._variants.add(tuple(self._variant(name, value) for name, value in given.items()))

    def _variant(self, name: str, value: Any) -> object:
        """The name and what of its value the compiled code depends on."""
        if isinstance(value, torch.Tensor):
            assert value.device.type == NOWHERE.type, f"{self._name}: {name} is on the host"
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
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

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
            is_late = kwargs.get("non_blocking") or (name == "copy_" and args[2:] == (True,))
            if not (is_copy and is_late):
                self._watch.waits.add(f"{name} at {_place()}")
        return result


class _Assignments(TorchFunctionMode):
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__setitem__ and args[0].device.type == NOWHERE.type:
            _, index, value = args
            has_indices = any(isinstance(x, torch.Tensor | list) for x in tree_leaves(index))
            if has_indices and not isinstance(value, torch.Tensor):
                self._watch.waits.add(f"assignment at {_place()}")
        return func(*args, **(kwargs or {}))


def _answers(there: torch.Tensor) -> Any:
    return torch.full(there.shape, ANSWER).to(there.dtype).tolist()


def _place() -> str:
    frames = [f for f in traceback.extract_stack() if "/core/" in f.filename]
    frames = [f for f in frames if "/tests/" not in f.filename]
    return " < ".join(f"{f.filename.partition('/core/')[2]}:{f.lineno}" for f in frames[:-3:-1])
