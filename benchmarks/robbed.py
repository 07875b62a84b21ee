"""Decode steps while something takes cores, or the interpreter's lock, from the compute threads.

    python -m benchmarks.robbed DIR [--rows 43] [--context 70] [--steps 60] [--rounds 3]

Loads a model in this process and decodes ``rows`` sequences, in turns:

- ``alone``;
- ``beside 10 %`` and ``beside 50 %``: another process computes for so much of every 10 ms;
- ``beside Python``: a thread of this process runs Python for 1 ms of every 10 ms, as a server's
  event loop does.

Prints milliseconds per step, mean and median, and CPU milliseconds per step of this process: each
the median over the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

os.environ.setdefault("GOMP_SPINCOUNT", "5000")  # as the server sets it, before torch is imported

from benchmarks.decoding import step_times
from core.assembly.build import load_engine
from core.contract.config import EngineConfig, ModelConfig
from server.cli.program import SWITCH_INTERVAL

PERIOD = 0.01
"""Seconds in which a thief computes once."""

PYTHON_SHARE = 0.1
WARM_UP = 5

LAST_ID = 4999
"""The highest id of random prompts, if the model has so many."""

THIEF = """
import time
while True:
    end = time.perf_counter() + {busy}
    while time.perf_counter() < end: pass
    time.sleep({rest})
"""


@contextlib.contextmanager
def process_beside(share: float) -> Iterator[None]:
    """Another process that computes for a share of every period."""
    program = THIEF.format(busy=share * PERIOD, rest=(1 - share) * PERIOD)
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def python_beside(share: float) -> Iterator[None]:
    """A thread that runs Python for a share of every period."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait((1 - share) * PERIOD):
            end = time.perf_counter() + share * PERIOD
            while time.perf_counter() < end:
                pass

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


TURNS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "alone": contextlib.nullcontext,
    "beside 10 %": lambda: process_beside(0.1),
    "beside 50 %": lambda: process_beside(0.5),
    "beside Python": lambda: python_beside(PYTHON_SHARE),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("directory")
    parser.add_argument("--rows", type=int, default=43)
    parser.add_argument("--context", type=int, default=70)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quantization", default="none")
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL)
    model = ModelConfig(model=options.directory, device="cpu", quantization=options.quantization)
    config = EngineConfig(max_model_len=512, enable_prefix_caching=False)
    loaded = load_engine(model, config)
    last_id = min(LAST_ID, loaded.info.num_token_ids - 1)
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in TURNS}
    for _ in range(options.rounds):
        for name, beside in TURNS.items():
            with beside():
                cpu = time.process_time()
                seconds = step_times(
                    loaded.engine,
                    options.rows,
                    context=options.context,
                    num_tokens=options.steps + WARM_UP,
                    last_id=last_id,
                )[-options.steps :]
                cpu = time.process_time() - cpu
            mean = 1e3 * statistics.mean(seconds)
            found[name].append((mean, 1e3 * statistics.median(seconds), 1e3 * cpu / options.steps))
    print(f"{'':16}{'mean ms':>9}{'median':>9}{'CPU ms':>9}")
    for name, rows in found.items():
        mean, median, cpu = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"{name:16}{mean:9.2f}{median:9.2f}{cpu:9.2f}", flush=True)


if __name__ == "__main__":
    main()
