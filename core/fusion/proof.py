"""Proof: compare a replacement with the original on random inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from core.contract.config import Quantization
from core.fusion.float32_copies import Float32Copies
from core.fusion.kinds import kind_of
from core.hook.causal_attention import causal_attention
from core.hook.interface import ModuleAttention
from core.kv.layer_spec import LayerSpec
from core.module.plain import activation_dtype

NUM_ROWS = 3

QUANTISED_NUM_ROWS = (NUM_ROWS, 24, 40, 100)
"""One number of rows for each tile size of the GPU's products with quantised weights."""

TOLERANCES = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Largest error relative to the largest output, by the type that the model computes in."""


QUANTISED = {"int8": 5e-2, "fp8": 1e-1}
"""The same for products with quantised weights, by format."""


T = TypeVar("T")


class Proof:
    """Compares modules on random inputs of one device and type."""

    def __init__(
        self,
        device: torch.device,
        dtype: torch.dtype,
        *,
        product_tolerance: float | None = None,
        product_rows: Sequence[int] = (NUM_ROWS,),
        widens: bool = False,
        is_by_kind: bool = False,
    ) -> None:
        """``product_tolerance`` and ``product_rows`` apply to modules that multiply by weights.

        With ``widens``, originals are compared as float32 copies. With ``is_by_kind``, errors do
        not depend on the values of weights.
        """
        self._device, self._dtype = device, dtype
        self._tolerance = TOLERANCES.get(dtype, 0.0)
        self._product_tolerance = (
            self._tolerance if product_tolerance is None else product_tolerance
        )
        self._product_rows = product_rows
        self._widens = widens
        self._is_by_kind = is_by_kind
        self._known: set[Hashable] = set()
        self._float32_copies = Float32Copies()
        self._generator = torch.Generator().manual_seed(0)

    def random(self, *shape: int) -> torch.Tensor:
        """Return normally distributed numbers."""
        return torch.randn(*shape, generator=self._generator).to(self._device, self._dtype)

    def references(self, modules: Sequence[nn.Module]) -> Sequence[Any]:
        """Return the modules in the type of the proof: copies, if they have to be converted.

        The next call overwrites the copies.
        """
        dtypes = {parameter.dtype for module in modules for parameter in module.parameters()}
        is_float32 = dtypes <= {torch.float32}
        return self._float32_copies.of(modules) if self._widens and not is_float32 else modules

    def is_close(self, expected: object, actual: torch.Tensor, *, is_product: bool = False) -> bool:
        """Whether ``actual`` is a tensor like ``expected`` up to the tolerance. NaN never is."""
        if not isinstance(expected, torch.Tensor):
            return False
        if expected.shape != actual.shape or expected.dtype != actual.dtype:
            return False
        tolerance = self._product_tolerance if is_product else self._tolerance
        bound = tolerance * expected.abs().max()
        return bool((expected - actual).abs().max() <= bound)

    def once(self, kind: Hashable, check: Callable[[], bool]) -> bool:
        """Whether a check succeeds, or has succeeded for this kind of candidate.

        Layers of a model do the same with different weights, so that one of them is a proof for
        all, unless the weights decide (``is_by_kind``). The assembled engine is proved after that.
        """
        if kind in self._known:
            return True
        found = check()
        if found and self._is_by_kind:
            self._known.add(kind)
        return found

    def is_equal(
        self,
        originals: Sequence[nn.Module],
        replacements: Sequence[nn.Module],
        size: int,
        *,
        is_product: bool,
    ) -> bool:
        """Whether modules with a common input ``[..., size]`` compute the same as others."""
        rows = self._product_rows if is_product else (NUM_ROWS,)
        inputs = (self.random(1, num_rows, size) for num_rows in rows)

        def check() -> bool:
            references = self.references(originals)
            return all(
                self._is_equal_on(x, references, replacements, is_product=is_product)
                for x in inputs
            )

        if not is_product:
            return check()
        kind = (*map(kind_of, originals), *map(type, replacements))
        return self.once(kind, check)

    def _is_equal_on(
        self,
        x: torch.Tensor,
        originals: Sequence[Any],
        replacements: Sequence[nn.Module],
        *,
        is_product: bool,
    ) -> bool:
        for original, replacement in zip(originals, replacements, strict=True):
            expected = output_of(original, x)
            if expected is None or not self.is_close(
                expected, replacement(x), is_product=is_product
            ):
                return False
        return True


def cuda_proof(model: nn.Module, quantization: Quantization) -> Proof:
    """Return the proof for a model on its device and in its type."""
    return Proof(
        next(model.parameters()).device,
        activation_dtype(model),
        product_tolerance=QUANTISED.get(quantization),
        product_rows=(NUM_ROWS,) if quantization == "none" else QUANTISED_NUM_ROWS,
        is_by_kind=quantization == "none",
    )


def output_of(original: Callable[..., T], *args: Any, **kwargs: Any) -> T | None:
    """Call the model's own code; None if it does not accept these arguments."""
    try:
        return original(*args, **kwargs)
    except torch.OutOfMemoryError:
        raise
    except (TypeError, ValueError, RuntimeError, IndexError, KeyError, AttributeError):
        return None


def left_out(module: nn.Module, given: Collection[str] = ()) -> dict[str, None]:
    """None for each argument that the module's class needs beside its first and those given.

    These are masks and caches, which attention gets elsewhere; their names are transformers' own.
    """
    parameters = list(inspect.signature(type(module).forward).parameters.values())[2:]
    return {
        each.name: None
        for each in parameters
        if each.default is each.empty
        and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        and each.name not in given
    }


def plain_attention(spec: LayerSpec) -> ModuleAttention:
    """Return causal attention of a prompt to itself, without a cache."""
    return lambda query, key, value, _module, _kwargs: causal_attention(query, key, value, spec)
