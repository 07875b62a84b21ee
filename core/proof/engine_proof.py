"""Prove at load that the assembled engine computes what transformers computes.

transformers' own forward pass, with its own attention and before any module is replaced, gives the
logits of two short sequences, side by side in a batch. The assembled engine then computes them as
it serves: packed side by side, in two chunks, the second sequence on a cached block of the first,
and the last tokens one at a time; then one of them with another cut, and on cached blocks. Sliding
windows are reduced so that both sequences go past them.

With its own cache transformers must give what a pass over the whole prompt gives: see OwnCache.

A large model is cut down to its first layers: see FewLayers.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from statistics import median_low
from typing import Any

import torch
from torch import nn

from core.attention.base import AttentionBackend, BackendFactory
from core.contract.errors import ModelLoadError
from core.hook.hook import AttentionHook
from core.hook.interface import ATTENTION_NAME
from core.hook.reduced import FewLayers
from core.proof.own_cache import OwnCache
from core.proof.steps import COMPARED, WINDOW, padded, prompts, run_steps
from core.run.forward import EagerForward
from core.system.device_memory import enough_memory

logger = logging.getLogger("roseinfer.core")

FLOAT32_TOLERANCE = 2e-3
"""Largest error of a token's logits, in standard deviations of all."""

ROUNDED_TOLERANCE = 0.25
"""The same for bfloat16 and float16, of the median token of a kind of step: rounding may change
which expert of a mixture serves a token."""

QUANTISED_TOLERANCE = 0.7
"""The same for weights or a cache of 8 bits."""


class EngineProof:
    """Logits of transformers for one model, and their comparison with the assembled engine.

    Core thread only. The model may change between the two.
    """

    def __init__(self, model: nn.Module, hook: AttentionHook) -> None:
        """Compute the reference. Raises ModelLoadError if transformers cannot."""
        start = time.perf_counter()
        config: Any = model.config
        self._model: Any = model
        self._hook = hook
        self._few_layers = FewLayers(model, hook.modules, hook.layers)
        self._device = next(model.parameters()).device
        self._prompts = prompts(config.get_text_config().vocab_size)
        self._cut_reason = ""
        with enough_memory("the proof at load"):
            self._expected = self._reference()
        self._seconds = time.perf_counter() - start

    def run(
        self, factory: BackendFactory, *, dtype: torch.dtype, kv_dtype: torch.dtype, is_exact: bool
    ) -> None:
        """Compare the assembled engine. Raises ModelLoadError with what differs.

        ``dtype`` is that of the activations. With ``is_exact`` weights are not quantised.
        """
        start = time.perf_counter()
        tolerance = FLOAT32_TOLERANCE if dtype is torch.float32 else ROUNDED_TOLERANCE
        if not is_exact or kv_dtype.itemsize < dtype.itemsize:
            tolerance = QUANTISED_TOLERANCE
        with enough_memory("the proof at load"):
            try:
                self._compare(factory, kv_dtype, tolerance)
            except (ModelLoadError, torch.OutOfMemoryError):
                raise
            except Exception as error:  # any error of the model's code
                logger.debug("the proof of the engine failed", exc_info=error)
                raise self._refusal(self._reason()) from error
            finally:
                self._hook.uninstall()
        self._seconds += time.perf_counter() - start
        logger.debug(
            "engine proved in %.2f s, with %d layers", self._seconds, self._few_layers.count
        )

    def _reference(self) -> list[torch.Tensor]:
        """Logits of the compared tokens of each sequence, ``[num_compared, vocab_size]``."""
        with self._hook.windows.reduced(WINDOW), self._few_layers.installed():
            try:
                self._model.set_attn_implementation("eager")
                with torch.inference_mode():
                    own_cache = OwnCache(self._model)
                    with own_cache.recorded():
                        logits = self._logits()
                    self._cut_reason = own_cache.reason(self._prompts[0])
                    return logits
            except (ModelLoadError, torch.OutOfMemoryError):
                raise
            except Exception as error:  # any error of the model's code
                logger.debug("transformers' own forward pass failed", exc_info=error)
                raise self._refusal(
                    "transformers' own forward pass of a short prompt fails"
                ) from error
            finally:
                self._model.set_attn_implementation(ATTENTION_NAME)

    def _logits(self) -> list[torch.Tensor]:
        """Logits of both sequences from one pass: the output layer reads its weight once."""
        ids = padded(self._prompts).to(self._device)
        wanted = sorted({index for indices in COMPARED for index in indices})
        output = self._model(
            input_ids=ids,
            position_ids=torch.arange(ids.shape[1], device=self._device).expand(len(ids), -1),
            use_cache=False,
            logits_to_keep=torch.tensor(wanted, device=self._device),
        )
        logits: torch.Tensor = output.logits
        if logits.shape[1] == len(wanted):  # not every model supports logits_to_keep
            rows = [[wanted.index(index) for index in indices] for indices in COMPARED]
        else:
            rows = COMPARED
        return [own[indices].float() for own, indices in zip(logits, rows, strict=True)]

    def _compare(self, factory: BackendFactory, kv_dtype: torch.dtype, tolerance: float) -> None:
        """Run the steps and compare the logits of each."""
        if not all(logits.isfinite().all() for logits in self._expected):
            raise self._refusal("transformers' own forward pass gives NaN or infinite logits")
        layers = self._hook.reduced_layers(WINDOW)
        steps = run_steps(
            self._forward_over, factory, layers, self._prompts, kv_dtype, self._device
        )
        deviation = torch.cat(self._expected).std().clamp_min(1e-6)
        errors: dict[str, list[float]] = defaultdict(list)
        with self._few_layers.installed():
            for finding, indices, actual in steps:
                parts = zip(self._expected, indices, strict=True)
                expected = torch.cat([logits[rows] for logits, rows in parts])
                if actual.shape != expected.shape:
                    raise self._refusal("its forward pass gives logits of other tokens than asked")
                error = (expected - actual).abs().amax(-1) / deviation
                errors[finding] += error.nan_to_num(nan=math.inf).tolist()
        for finding, found in errors.items():
            worst = max(found)
            error_of_kind = worst if tolerance == FLOAT32_TOLERANCE else median_low(found)
            if error_of_kind >= tolerance or math.isinf(worst):
                raise self._refusal(
                    f"{finding} (error {error_of_kind:.2g} standard deviations of the logits)"
                )
        if self._cut_reason:
            raise self._refusal(self._cut_reason)

    def _forward_over(self, attention: AttentionBackend) -> EagerForward:
        self._hook.attach(attention)
        return EagerForward(self._model, attention, self._device)

    def _reason(self) -> str:
        """Why the forward pass fails where transformers' own does not."""
        if any(type(module).__name__.endswith("Indexer") for module in self._model.modules()):
            return "an indexer of its own chooses the tokens that attention sees"
        return "its forward pass fails once its attention and its modules are replaced"

    def _refusal(self, reason: str) -> ModelLoadError:
        return ModelLoadError(f"{type(self._model).__name__} cannot be served: {reason}")
