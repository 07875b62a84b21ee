"""Proof: compare a replacement with the original on random inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from core.contract.config import Quantization
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
    ) -> None:
        """``product_tolerance`` and ``product_rows`` apply to modules that multiply by weights."""
        self._device, self._dtype = device, dtype
        self._tolerance = TOLERANCES.get(dtype, 0.0)
        self._product_tolerance = (
            self._tolerance if product_tolerance is None else product_tolerance
        )
        self._product_rows = product_rows
        self._generator = torch.Generator().manual_seed(0)

    def random(self, *shape: int) -> torch.Tensor:
        """Return normally distributed numbers."""
        return torch.randn(*shape, generator=self._generator).to(self._device, self._dtype)

    def is_close(self, expected: object, actual: torch.Tensor, *, is_product: bool = False) -> bool:
        """Return true if both are tensors that are equal up to the tolerance. NaN never is."""
        if not isinstance(expected, torch.Tensor):
            return False
        if expected.shape != actual.shape or expected.dtype != actual.dtype:
            return False
        tolerance = self._product_tolerance if is_product else self._tolerance
        bound = tolerance * expected.abs().max()
        return bool((expected - actual).abs().max() <= bound)

    def is_equal(
        self,
        originals: Sequence[nn.Module],
        replacements: Sequence[nn.Module],
        size: int,
        *,
        is_product: bool,
    ) -> bool:
        """Return true if modules with a common input ``[..., size]`` compute the same as others."""
        rows = self._product_rows if is_product else (NUM_ROWS,)
        return all(
            self._is_equal_on(
                self.random(1, num_rows, size), originals, replacements, is_product=is_product
            )
            for num_rows in rows
        )

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
    )


def output_of(original: Callable[..., T], *args: Any, **kwargs: Any) -> T | None:
    """Call the model's own code; None if it does not accept these arguments."""
    try:
        return original(*args, **kwargs)
    except torch.OutOfMemoryError:
        raise
    except (TypeError, ValueError, RuntimeError, IndexError, KeyError, AttributeError):
        return None


def left_out(module: nn.Module, given: Collection[str]) -> dict[str, None]:
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
    return lambda query, key, value, _module, _kwargs: _causal_attention(query, key, value, spec)


def _causal_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, spec: LayerSpec
) -> torch.Tensor:
    """Attend ``[num_tokens, heads, dim]`` each; returns ``[num_tokens, num_heads, value_dim]``."""
    positions = torch.arange(query.shape[0], device=query.device)
    mask = positions <= positions[:, None]
    if spec.sliding_window is not None:
        mask &= positions > positions[:, None] - spec.sliding_window
    if spec.softcap is not None or spec.sinks is not None:
        return _plain(query, key, value, mask, spec)
    output = scaled_dot_product_attention(
        query.transpose(0, 1),
        key.transpose(0, 1),
        value.transpose(0, 1),
        attn_mask=mask,
        scale=spec.scale,
        enable_gqa=spec.num_heads != spec.num_kv_heads,
    )
    return output.transpose(0, 1)


def _plain(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    spec: LayerSpec,
) -> torch.Tensor:
    """The same in single operations, with what torch's function does not have. In float32."""
    num_tokens = query.shape[0]
    q = query.float().transpose(0, 1).reshape(spec.num_kv_heads, -1, num_tokens, spec.head_dim)
    k, v = (states.float().transpose(0, 1)[:, None] for states in (key, value))
    scores = q @ k.transpose(-1, -2) * spec.scale  # [kv_heads, group, num_tokens, num_tokens]
    if spec.softcap is not None:
        scores = torch.tanh(scores / spec.softcap) * spec.softcap
    scores = scores.masked_fill(~mask, float("-inf"))
    if spec.sinks is not None:
        sinks = spec.sinks.view(spec.num_kv_heads, -1, 1, 1).expand(-1, -1, num_tokens, 1)
        scores = torch.cat([scores, sinks], dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., :num_tokens]
    return (weights @ v).flatten(0, 1).transpose(0, 1).to(query.dtype)
