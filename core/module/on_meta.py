"""QuickOnMeta: build modules without memory, and without torch's arithmetic for such tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import init

from core.system.torch_import import restored_if_needed

_OF_A_NUMBER = {
    *("div", "__truediv__", "__rdiv__", "__rtruediv__"),
    *("mul", "__mul__", "__rmul__", "pow", "__rpow__", "reciprocal"),
}
"""Names of functions that give a tensor of floats, with a number, another one of its kind."""


class QuickOnMeta(torch.overrides.TorchFunctionMode):
    """On "meta", initialise no parameter, and know the result's shape of what RoPE's angles take.

    transformers builds a model on that device before it assigns the weights of a checkpoint. To do
    arithmetic there, torch imports a package for symbolic algebra, which takes longer than to load
    the weights of a small model. It acts in the thread that enters it.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == init.__name__:
            tensor = kwargs.get("tensor", args[0] if args else None)
            if isinstance(tensor, torch.Tensor) and tensor.is_meta:
                return tensor
        elif func is torch.arange and str(kwargs.get("device")) == "meta":
            return _like(func(*args, **(kwargs | {"device": "cpu"})))
        elif func is torch.empty_like and kwargs.keys() <= {"dtype", "device"}:
            if args[0].is_meta and args[0].is_contiguous():
                given = {name: value for name, value in kwargs.items() if value is not None}
                return torch.empty(
                    args[0].shape, **({"dtype": args[0].dtype, "device": "meta"} | given)
                )
        elif not kwargs and getattr(func, "__name__", "") in _OF_A_NUMBER and _is_plain(args):
            return _like(args[0])
        return restored_if_needed(func, *args, **kwargs)


def _is_plain(args: tuple[Any, ...]) -> bool:
    """Whether these are a tensor of floats on "meta" and numbers."""
    tensor, *others = args
    return (
        type(tensor) is torch.Tensor
        and tensor.is_meta
        and tensor.is_floating_point()
        and all(isinstance(other, int | float) for other in others)
    )


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape and type on "meta"."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
