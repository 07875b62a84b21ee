"""Time of a decode step on the host: everything except the model.

    python -m benchmarks.host_step [--rows 1,8,32,128] [--steps 200] [--spin-ms 5]

Runs an engine with async scheduling, as on a GPU, over a forward pass that returns at once.
Scheduling, inputs, sampling, text and outputs are real. With async scheduling a GPU waits for the
host only if a step takes the host longer than the GPU. Prints milliseconds per step, the tenth
percentile, of one thread with greedy rows and one output per token. The host's part of CUDA graphs
(the attention plan, one copy, one launch) is not included.

With ``--spin-ms`` the core computes something else before each step, as long as a forward pass on a
CPU. Where other virtual machines share its caches, a step may take several times as long then.
"""

from __future__ import annotations

import argparse

import torch

from benchmarks.decoding import step_times
from benchmarks.engine_without_model import engine_without_model
from core.builtin_model import path as builtin_path
from core.text.tokenizer import Tokenizer

PROMPT_TOKENS = 256
WARM_UP = 10


def measure(
    num_rows: int, num_steps: int, tokenizer: Tokenizer, vocab_size: int, spin_seconds: float = 0.0
) -> float:
    """Milliseconds of a decode step."""
    num_tokens = num_steps + WARM_UP
    engine = engine_without_model(
        tokenizer,
        vocab_size=vocab_size,
        num_rows=num_rows,
        num_tokens=PROMPT_TOKENS + num_tokens,
    )
    times = step_times(
        engine,
        num_rows,
        context=PROMPT_TOKENS,
        num_tokens=num_tokens,
        last_id=vocab_size - 1,
        spin_seconds=spin_seconds,
    )
    decodes = sorted(times[-num_steps:])
    return 1e3 * decodes[len(decodes) // 10]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", default="1,8,32,128", help="sequences per step, comma-separated")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--spin-ms", type=float, default=0.0, help="between two steps")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = Tokenizer.load(str(builtin_path()))
    vocab_size = len(tokenizer.vocabulary)
    for num_rows in map(int, options.rows.split(",")):
        found = measure(num_rows, options.steps, tokenizer, vocab_size, options.spin_ms / 1e3)
        print(f"{num_rows:4} rows: {found:.3f} ms per step")


if __name__ == "__main__":
    main()
