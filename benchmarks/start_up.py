"""Start-up: load time by checkpoint type, and the first prompt beside later ones.

    python -m benchmarks.start_up [--models gpt2,qwen3-0.6b] [--rounds 3] [--prompt-len 200]

For each random model, its bfloat16 checkpoint and a float32 twin of it are loaded in turns, each
time in a new process. Prints seconds of load_engine (wall and CPU time, medians over the rounds),
those in which the modules and the assembled engine are proved, and time to first token in
milliseconds: of the first request, and the median of the next nine, all with prompts of the same
length. Modules are imported before the clock starts.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.random_model import cached_random_model
from benchmarks.process import clean_environment

SPIN = {"GOMP_SPINCOUNT": "5000"}
"""As ``roseinfer serve`` sets it."""


def make_float32_twin(directory: Path, twin: Path) -> None:
    """Write the checkpoint in ``directory`` to ``twin`` with float32 weights."""
    from safetensors.torch import load_file, save_file  # noqa: PLC0415 - imports torch

    shutil.copytree(directory, twin)
    for file in twin.glob("*.safetensors"):
        tensors = {name: tensor.float() for name, tensor in load_file(file).items()}
        save_file(tensors, file, metadata={"format": "pt"})
    config = json.loads((twin / "config.json").read_text())
    config["dtype"] = config["torch_dtype"] = "float32"
    (twin / "config.json").write_text(json.dumps(config))


def _measure_in_new_process(directory: Path, prompt_len: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.start_up_child", str(directory), str(prompt_len)]
    done = subprocess.run(
        command,
        env=clean_environment() | SPIN,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare_twins(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the medians of the bfloat16 model and of its float32 twin."""
    directory = cached_random_model(name)
    with tempfile.TemporaryDirectory(prefix=".twin-", dir=directory.parent) as folder:
        twin = Path(folder) / "float32"
        make_float32_twin(directory, twin)
        places = {"bfloat16": directory, "float32": twin}
        found: dict[str, list[dict[str, float]]] = {dtype: [] for dtype in places}
        for _ in range(options.rounds):
            for dtype, place in places.items():
                found[dtype].append(_measure_in_new_process(place, options.prompt_len))
    return [
        {"model": name, "dtype": dtype}
        | {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        for dtype, rows in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default="gpt2,qwen3-0.6b", help="random models, by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt-len", type=int, default=200, help="tokens of each prompt")
    options = parser.parse_args()
    print(
        f"{'model':14}{'type':10}{'load s':>8}{'CPU s':>8}{'proof s':>9}"
        f"{'first ms':>10}{'later ms':>10}"
    )
    for name in options.models.split(","):
        for row in compare_twins(name, options):
            print(
                f"{row['model']:14}{row['dtype']:10}{row['load_s']:8.1f}{row['load_cpu_s']:8.1f}"
                f"{row['proof_s']:9.2f}{row['first_ttft_ms']:10.0f}{row['later_ttft_ms']:10.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
