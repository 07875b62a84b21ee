r"""Runs roseinfer and its peers under the same loads, in turn, on this machine.

    python -m benchmarks.compare --models gpt2 --rounds 3 \
        --llama-server PATH --gguf DIR [--llama-tree DIR] --vllm-bin PATH \
        --openvino-python PATH --openvino-models DIR --transformers-bin PATH --out results.jsonl
    python -m benchmarks.publish results.jsonl

In each round every contender has one turn: start the server, send one short request, run every
scenario (``benchmarks/scenarios.py``), stop the server. Before the start and before each run, wait
until the machine is quiet. Before and after each run, and between two requests of one stream, probe
the machine. Every other round goes in the opposite order. The model is a random one of a known
shape, the same directory for all contenders. Or it is a GGUF file, which roseinfer and llama.cpp
serve:

    python -m benchmarks.compare --models FILE.gguf --scenarios s1,streams-16,prefill \
        --llama-server PATH --out results.jsonl

``benchmarks/peers.md`` says how to get the peers.

A run in which other processes used more than ``--max-other`` percent of a core is marked as
disturbed and repeated up to ``--retries`` times. A run that takes longer than ``--limit`` seconds
is cut; its rate is that of the time until then. ``--scale`` makes every scenario smaller, and the
results say so. Variants (quantized weights, the engine without HTTP) run only
``--variant-scenarios``. Every run is a line appended to ``--out``.

A long comparison can be cut into slices: ``--max-minutes 9`` starts no run that would end later,
and ``--resume`` leaves out the runs that ``--out`` already holds. Repeat such a command until it
exits with 0; 3 means that runs are left.

Run nothing else meanwhile. When one compute thread loses its core, the others wait for it, so a
server gets two to four times slower.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import host
from benchmarks.contenders import find_contenders, find_contenders_of_file, find_model, is_file
from benchmarks.rounds import run_rounds
from benchmarks.scenarios import DEFAULT, scenarios
from benchmarks.session import Session, strip_paths

ROOT = Path(__file__).resolve().parent.parent

RUNS_LEFT = 3
"""The exit code when ``--max-minutes`` left runs for another call."""


def main() -> None:
    options = make_parser().parse_args()
    signal.signal(signal.SIGTERM, _exit)
    host.wait_quiet(options.wait_quiet)
    session = Session(options=options, gemm=_gemm_rates())
    if options.resume:
        session.resume()
    of_file, of_shape = find_contenders_of_file(options), find_contenders(options, session.gemm)
    turns = [
        (find_model(name, options), of_file if is_file(name) else of_shape)
        for name in options.models
    ]
    contenders = {c.name: c for _, found in turns for c in found}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    session.write(
        "session",
        command=shlex.join(["python", "-m", "benchmarks.compare", *map(strip_paths, sys.argv[1:])]),
        machine=host.describe(),
        gemm_gflops=session.gemm,
        scale=options.scale,
        limit_s=options.limit,
        contenders={name: contender.versions() for name, contender in contenders.items()},
    )
    print(f"{', '.join(contenders)}; {options.rounds} rounds", flush=True)
    with tempfile.TemporaryDirectory(prefix="roseinfer-compare-") as logs:
        for model, found in turns:
            run_rounds(session, model, found, Path(logs))
    print(f"{session.elapsed / 60:.1f} minutes; results are in {options.out}")
    if session.num_left:
        print(f"{session.num_left} runs are left; repeat the command with --resume")
        sys.exit(RUNS_LEFT)


def _gemm_rates() -> dict[str, float]:
    """Rates of matrix products. A subprocess measures them, so that this process has no torch."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.matmul"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    rates: dict[str, float] = json.loads(done.stdout)
    return rates


def _exit(_signal: int, _frame: object) -> None:
    """Exit by an exception, which stops the running server."""
    sys.exit("compare: stopped by a signal")


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _scenario_names(text: str) -> list[str]:
    names = _names(text)
    known = scenarios(sys.maxsize)
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"{unknown[0]} is none of {', '.join(known)}")
    return names


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--models",
        type=_names,
        default=["gpt2", "qwen3-0.6b"],
        help="shapes, directories or GGUF files",
    )
    add("--scenarios", type=_scenario_names, default=list(DEFAULT))
    add("--variant-scenarios", type=_scenario_names, default=["s1", "s2"])
    add("--contenders", type=_names, help="only these, by their names in the results")
    add("--rounds", type=int, default=3)
    add("--scale", type=float, default=1.0, help="part of the scenarios' work (default: all)")
    add("--limit", type=float, default=60.0, help="seconds after which a run is cut")
    add("--max-minutes", type=float, default=math.inf, help="start no run that would end later")
    add("--resume", action="store_true", help="leave out the runs that --out already holds")
    add("--dtype", default="bfloat16", help="of roseinfer's weights")
    add("--llama-server", type=Path, help="llama.cpp's server (default: on the path)")
    add("--llama-flags", default="", help="further flags of llama.cpp's server")
    add("--gguf", type=Path, help="the folder of NAME-bf16.gguf and NAME-q8_0.gguf")
    add("--llama-tree", type=Path, help="llama.cpp's sources; makes missing GGUF files")
    add("--convert-python", help="an interpreter with torch, transformers and sentencepiece")
    add("--transformers-bin", type=Path, help="the program `transformers`")
    add("--transformers-dtype", default="auto", help="default: the type with faster products")
    add("--vllm-bin", type=Path, help="the program `vllm` (default: on the path)")
    add("--openvino-python", type=Path, help="an interpreter with openvino-genai and msgspec")
    add("--openvino-models", type=Path, help="the folder of NAME-fp16 and NAME-int8")
    add("--out", type=Path, default=Path("benchmarks/results.jsonl"))
    add("--wait-quiet", type=float, default=30.0, help="seconds to wait for a quiet machine")
    add("--max-other", type=float, default=12.0, help="percent of a core for other processes")
    add("--retries", type=int, default=1, help="repetitions of a disturbed run")
    add("--start-timeout", type=float, default=300.0, help="seconds until a server must be ready")
    return parser


if __name__ == "__main__":
    main()
