"""Checks the distribution of sampled tokens, and times the sampling of a batch."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.gpu.options import Options
from benchmarks.gpu.rates import seconds_of
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.sampling.draw import RowDraw, load_row_draw
from core.sampling.sampler import Sampler
from core.sampling.torch_draw import draw_rows
from core.state.sequence import Sequence

SETTINGS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.8},
    "top_p": {"temperature": 0.8, "top_p": 0.9},
    "top_k": {"temperature": 0.8, "top_k": 40},
    "min_p": {"temperature": 0.8, "min_p": 0.02},
    "top_k, top_p": {"temperature": 0.8, "top_k": 40, "top_p": 0.9},
}
NUM_DRAWS = 4096
MAX_DEVIATIONS = 5.0
"""Standard deviations of the binomial distribution, for the worst of some hundred tokens."""


def sampling(options: Options) -> Iterator[dict[str, Any]]:
    """Compare frequencies with probabilities; then time the kernel and torch's operations."""
    device = torch.device(options.device)
    vocab_sizes = (1000,) if options.tiny else (50_257, 151_936)
    num_draws = NUM_DRAWS // 8 if options.tiny else NUM_DRAWS
    dtype = getattr(torch, options.dtype())
    for vocab_size in vocab_sizes:
        generator = torch.Generator(device).manual_seed(0)
        logits = 3 * torch.randn(vocab_size, generator=generator, device=device)
        draw = load_row_draw(vocab_size, dtype, device)
        for name, setting in SETTINGS.items():
            worst = _worst_deviation(logits.to(dtype), setting, draw, num_draws)
            yield {
                "name": f"{name}, {vocab_size} tokens",
                "ok": worst <= MAX_DEVIATIONS,
                "deviations": worst,
                **_milliseconds(logits.to(dtype), setting, draw, options),
            }


def _worst_deviation(
    logits: torch.Tensor, setting: dict[str, Any], draw: RowDraw, num_draws: int
) -> float:
    """The largest deviation of a token's frequency, in standard deviations."""
    results = Sampler(draw=draw)(logits.repeat(num_draws, 1), _sequences(num_draws, setting))
    tokens = torch.tensor([result.token_ids[0] for result in results])
    expected = _probabilities(logits.double().cpu(), SamplingParams(max_tokens=1, **setting))
    counts = torch.bincount(tokens, minlength=len(logits))
    if counts[expected == 0].sum() > 1:  # one token may be at the boundary, by rounding
        return float("inf")
    likely = expected > 10 / num_draws
    mean = num_draws * expected[likely]
    deviation = (mean * (1 - expected[likely])).sqrt()
    return float(((counts[likely] - mean) / deviation).abs().max())


def _probabilities(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Probabilities after min_p, then top_k, then top_p: [vocab_size] float64."""
    weights = ((logits - logits.max()) / params.temperature).exp()
    weights[weights < params.min_p] = 0
    order = weights.argsort(descending=True, stable=True)
    ranked = weights[order]
    if params.top_k:
        ranked[params.top_k :] = 0
    before = ranked.cumsum(0) - ranked
    ranked[before >= params.top_p * ranked.sum()] = 0
    return torch.zeros_like(weights).index_put_((order,), ranked / ranked.sum())


def _milliseconds(
    logits: torch.Tensor, setting: dict[str, Any], draw: RowDraw, options: Options
) -> dict[str, float]:
    """Milliseconds of a step's sampling, including the host's part and synchronization."""
    found = {}
    for num_rows in (4,) if options.tiny else (1, 32, 128):
        rows, sequences = logits.repeat(num_rows, 1), _sequences(num_rows, setting)
        for label, kind in {"": draw, "torch_": draw_rows}.items():
            sampler = Sampler(draw=kind)
            step = functools.partial(sampler, rows, sequences)
            found[f"{label}{num_rows}_ms"] = 1e3 * seconds_of(step, options.device)
    return found


def _sequences(num: int, setting: dict[str, Any]) -> list[Sequence]:
    params = SamplingParams(max_tokens=1, **setting)
    request = EngineRequest(request_id="draw", prompt_token_ids=(1,), params=params)
    return [Sequence(request, seed=seed) for seed in range(num)]
