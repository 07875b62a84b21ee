"""Limits: sizes of batches and contexts, from the configuration and the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from core.contract.config import EngineConfig
from core.contract.errors import ModelLoadError
from core.load.loaded_model import LoadedModel
from core.run.keys_per_row import keys_per_row

DEFAULT_MAX_NUM_BATCHED_TOKENS = {"cpu": 512, "cuda": 8192}
"""Largest step by device, in tokens. Either takes a fraction of a second."""

DEFAULT_MAX_STEP_MS = {"cpu": 50.0, "cuda": None}
"""Expected duration of a step with prompts beside decodes. On a CPU the largest step would take
many times as long as one without prompts. Beside slow streams it is longer: see ``StepTime``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """See EngineConfig, whose defaults are resolved here. Lengths and sizes are in tokens.

    ``keys_per_row`` is that of the scheduler's PromptRows.
    """

    max_num_seqs: int
    max_model_len: int
    max_num_batched_tokens: int
    prefill_chunk_size: int | None
    max_step_seconds: float | None
    block_size: int
    keys_per_row: float = math.inf

    @classmethod
    def of(cls, model: LoadedModel, config: EngineConfig) -> Limits:
        """Resolve the limits. Raises ModelLoadError, naming the flag, if they conflict."""
        device = model.device.type
        return cls(
            max_num_seqs=config.max_num_seqs,
            max_model_len=_max_model_len(model, config.max_model_len),
            max_num_batched_tokens=_max_num_batched_tokens(device, config),
            prefill_chunk_size=config.prefill_chunk_size,
            max_step_seconds=max_step_seconds(device, config),
            block_size=config.block_size,
            keys_per_row=keys_per_row(model.config),
        )


def _max_model_len(model: LoadedModel, wanted: int | None) -> int:
    longest = model.max_model_len
    if wanted is None and longest is None:
        raise ModelLoadError(
            f"{type(model.config).__name__} does not say how long its context is: "
            "give --max-model-len"
        )
    if wanted is None or longest is None:
        return longest or wanted or 0
    if wanted > longest:
        raise ModelLoadError(f"--max-model-len {wanted} is more than the model's {longest}")
    return wanted


def max_step_seconds(
    device: str, config: EngineConfig, default: Mapping[str, float | None] = DEFAULT_MAX_STEP_MS
) -> float | None:
    """The longest duration that a step should have; None is without limit.

    ``default`` has the milliseconds by device.
    """
    max_step_ms = config.max_step_ms or default[device]
    return None if max_step_ms is None else max_step_ms / 1000


def _max_num_batched_tokens(device: str, config: EngineConfig) -> int:
    wanted = config.max_num_batched_tokens
    if wanted is None:
        return max(DEFAULT_MAX_NUM_BATCHED_TOKENS[device], config.max_num_seqs)
    if wanted < config.max_num_seqs:
        raise ModelLoadError(
            f"--max-num-batched-tokens {wanted} is less than --max-num-seqs {config.max_num_seqs}"
        )
    return wanted
