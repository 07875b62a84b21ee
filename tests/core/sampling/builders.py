"""Sequences, logits, and an independent float64 model of the draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.state.sequence import Sequence

FloatArray = npt.NDArray[np.float64]


def make_sequence(
    prompt: tuple[int, ...] = (1, 2, 3),
    output: tuple[int, ...] = (),
    *,
    seed: int = 0,
    **params: Any,
) -> Sequence:
    """A sequence that has generated ``output``."""
    params.setdefault("max_tokens", 1000)
    request = EngineRequest(
        request_id="request", prompt_token_ids=prompt, params=SamplingParams(**params)
    )
    sequence = Sequence(request, seed=seed)
    sequence.token_ids.extend(output)
    return sequence


def make_logits(
    num_rows: int, vocab_size: int, *, seed: int = 0, scale: float = 3.0
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_rows, vocab_size, generator=generator) * scale


def survivors(logits: torch.Tensor, params: SamplingParams) -> tuple[list[int], FloatArray]:
    """Tokens of one row that can be drawn, in rank order, and their probabilities."""
    order = sorted(range(len(logits)), key=lambda token: (-float(logits[token]), token))
    scaled = [float(logits[token]) / params.temperature for token in order]
    weights = [float(np.exp(value - scaled[0])) for value in scaled]
    kept = [rank for rank, weight in enumerate(weights) if weight >= params.min_p]
    if params.top_k:
        kept = kept[: params.top_k]
    mass = sum(weights[rank] for rank in kept)
    nucleus: list[int] = []
    reached = 0.0
    for rank in kept:
        if nucleus and reached >= params.top_p * mass:
            break
        nucleus.append(rank)
        reached += weights[rank]
    probabilities = np.array([weights[rank] for rank in nucleus])
    return [order[rank] for rank in nucleus], probabilities / probabilities.sum()


def is_clear_cut(logits: torch.Tensor, params: SamplingParams, margin: float = 1e-5) -> bool:
    """Whether every candidate is so far from the thresholds that rounding cannot decide."""
    scaled = logits.double().sort(descending=True).values / params.temperature
    weights = (scaled - scaled[0]).exp().numpy()
    if params.min_p and (np.abs(weights - params.min_p) < margin).any():
        return False
    kept = weights[weights >= params.min_p][: params.top_k or None]
    shares = np.cumsum(kept) / kept.sum()
    return params.top_p == 1.0 or not (np.abs(shares - params.top_p) < margin).any()
