"""OwnCache: compare transformers' own cache with a pass over the whole prompt.

The paged cache has the keys and values of each attention call. A model that does something else
with a cache computes what it was trained for only with transformers' one, and then its answer
depends on where a prompt is cut.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median_low
from typing import Any

import torch

from core.module.plain import activation_dtype
from core.module.prequantised import is_quantised
from core.proof.steps import FIRST_CHUNK_ENDS

logger = logging.getLogger("roseinfer.core")

FLOAT32_TOLERANCE = 2e-3
"""Largest distance of the median token's hidden states, relative to them."""

ROUNDED_TOLERANCE = 0.1
"""The same in bfloat16 and float16, and with layers of a quantised checkpoint."""

_NAMES = ("cache", "past_key_values")
"""Names of the cache in arguments and outputs; up to transformers 5.23 it is the second one."""


class OwnCache:
    """Compares the last hidden states of a prompt in one pass and in two with a cache.

    Core thread only.
    """

    def __init__(self, model: Any) -> None:
        self._model, self._base = model, model.base_model
        self._states: torch.Tensor | None = None

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Keep the states of the first prompt of the pass over whole prompts in the block."""

        def keep(_module: object, _args: object, output: Any) -> None:
            states = getattr(output, "last_hidden_state", None)
            self._states = states[:1] if isinstance(states, torch.Tensor) else None

        handle = self._base.register_forward_hook(keep)
        try:
            yield
        finally:
            handle.remove()

    def reason(self, prompt: list[int]) -> str:
        """Why the model cannot be served, of the first prompt that was recorded; or nothing."""
        is_exact = activation_dtype(self._model) is torch.float32 and not is_quantised(self._model)
        tolerance = FLOAT32_TOLERANCE if is_exact else ROUNDED_TOLERANCE
        errors = self._errors(prompt, FIRST_CHUNK_ENDS[0])
        if errors is None or not all(map(math.isfinite, errors)):
            return ""
        if (median := median_low(errors)) < tolerance:
            return ""
        return (
            "with transformers' own cache its results depend on where a prompt is cut "
            f"(error {median:.2g} of the hidden states)"
        )

    def _errors(self, prompt: list[int], cut: int) -> list[float] | None:
        """Distances after the cut, relative to the states of the pass that was recorded.

        None if there is nothing to compare: transformers' own cache is not needed, so an error of
        it says nothing about the model here.
        """
        if self._states is None:
            return None
        try:
            ids = torch.tensor([prompt], device=self._states.device)
            actual = self._last_states(ids, cut)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # any error of the model's code
            logger.debug("transformers' own cache was not compared", exc_info=error)
            return None
        expected = self._states[:, cut : len(prompt)]
        if actual is None or actual.shape != expected.shape:
            return None
        distance = (actual - expected).float().norm(dim=-1)
        relative = distance / expected.float().norm(dim=-1).clamp_min(1e-6)
        found: list[float] = relative.flatten().tolist()
        return found

    def _last_states(self, prompt: torch.Tensor, cut: int) -> torch.Tensor | None:
        positions = torch.arange(prompt.shape[1], device=prompt.device)[None]
        first = self._base(
            input_ids=prompt[:, :cut], position_ids=positions[:, :cut], use_cache=True
        )
        known = inspect.signature(type(self._base).forward).parameters
        name = next((name for name in _NAMES if name in known), None)
        cache = next((c for n in _NAMES if (c := getattr(first, n, None)) is not None), None)
        if name is None or cache is None:
            return None
        second = self._base(
            input_ids=prompt[:, cut:],
            position_ids=positions[:, cut:],
            use_cache=True,
            **{name: cache},
        )
        states: torch.Tensor = second.last_hidden_state
        return states
