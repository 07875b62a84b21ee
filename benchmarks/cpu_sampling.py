"""Time the sampling of a step on a CPU, by what the requests ask for.

    python -m benchmarks.cpu_sampling [--vocab-size N] [--num-rows N] [--rounds N]

Prints milliseconds of CPU time per row, all threads together: the shortest and the median round of
the compiled kernels, and the shortest of torch's operations, which serve without a compiler. The
logits are normally distributed with a standard deviation of 3.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.sampling.draw import RowDraw, load_row_draw
from core.sampling.sampler import Sampler
from core.sampling.torch_draw import draw_rows
from core.state.sequence import Sequence

CASES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "temperature 1": {},
    "temperature 2, top_p 0.95": {"temperature": 2.0, "top_p": 0.95},
    "temperature 0.8, top_p 0.9": {"temperature": 0.8, "top_p": 0.9},
    "top_k 20, top_p 0.95": {"temperature": 0.6, "top_k": 20, "top_p": 0.95},
    "top_k 20,000": {"top_k": 20_000},
    "min_p 0.05": {"min_p": 0.05},
    "penalties": {"frequency_penalty": 0.5, "repetition_penalty": 1.1},
    "greedy, 20 log-probabilities": {"temperature": 0.0, "logprobs": 20},
}
PROMPT = tuple(range(1000, 1300))

Times = npt.NDArray[np.float64]


def milliseconds(draw: RowDraw, logits: torch.Tensor, params: dict[str, Any], rounds: int) -> Times:
    """CPU time of each round, in milliseconds per row."""
    request = EngineRequest(
        request_id="row",
        prompt_token_ids=PROMPT,
        params=SamplingParams(max_tokens=1, **params),
    )
    sequences = [Sequence(request, seed=seed) for seed in range(len(logits))]
    sampler, times = Sampler(draw=draw), []
    for _ in range(rounds):
        copy = logits.clone()  # a step's logits are new; this also puts them into the cache
        start = time.process_time()
        sampler(copy, sequences)
        times.append(1e3 * (time.process_time() - start) / len(logits))
    return np.array(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocab-size", type=int, default=151_936)
    parser.add_argument("--num-rows", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(min(torch.get_num_threads(), options.num_rows))
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(options.num_rows, options.vocab_size, generator=generator)
    kernel = load_row_draw(options.vocab_size, torch.float32, torch.device("cpu"))
    print(f"{'':30} kernel   median    torch (ms of CPU time per row)")
    for name, params in CASES.items():
        own = milliseconds(kernel, logits, params, options.rounds)
        other = milliseconds(draw_rows, logits, params, max(3, options.rounds // 10))
        print(f"{name:30} {own.min():6.3f} {np.median(own):8.3f} {other.min():8.3f}")


if __name__ == "__main__":
    main()
