"""Checks and measures everything that needs a GPU.

    python -m benchmarks.gpu_check                                # all parts, about 25 minutes
    python -m benchmarks.gpu_check --parts machine,attention,texts --json results.jsonl
    python -m benchmarks.gpu_check --device cpu --tiny            # a rehearsal, within minutes

Every part runs in its own process with a time limit and reports its results as they come: a line
for people, and a line of JSON in the file of ``--json``. A part that fails, crashes or takes too
long does not stop the others. Exits with code 1 if a check failed.

tests      pytest -m gpu
machine    copy bandwidth and matrix product rate; floors follow from them
attention  every attention backend against the torch backend in float32
texts      the same tokens in any batch, with and without CUDA graphs, async scheduling and other
           attention backends, with a small pool, and in transformers' generate
sampling   frequencies of many draws; milliseconds per batch, in one kernel and by torch
memory     memory in use; a step that runs out of memory
gpt2       64 requests 20 ms apart; 128 at once, 256 in, 64 out; one stream
small      Qwen3-0.6B: one stream; 128 at once
large      Qwen3-8B: one stream; 1, 8, 32 and 128 at a time, 1,024 in, 256 out
shared     Qwen3-8B: 2,048 tokens in common; a prompt of 16,000 while 16 streams run
fp8        Qwen3-8B with an fp8 KV cache
weights    products with int8 and fp8 matrices; Qwen3-8B with and without them: one stream, 32
gaps       idle time of the device between steps, from torch's profiler
host       the host's time for a prompt's step, with and without CUDA graphs
peer       transformers' continuous batching with the same models and loads
http       the loads of gpt2 and large through the server

Models have random weights. They are made in the model cache of ``roseinfer bench`` on first use
(16 GB for Qwen3-8B); ``--make-models`` only makes them.

Needs this repository, torch with CUDA, Triton (and a C compiler for it), transformers, msgspec,
llguidance and tqdm. The part ``http`` also needs the server's packages, ``tests`` needs pytest and
hypothesis; without them these parts are skipped.

On a machine with torch but no network, carry the other packages as wheels for its Python and
platform (git ignores the folder), for example

    python -m pip download --dest wheels --no-deps --only-binary=:all: --python-version 3.12
        --implementation cp --platform manylinux_2_31_x86_64 --platform manylinux_2_28_x86_64
        --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 "llguidance>=1.8"
        msgspec litestar litestar-htmx uvicorn httptools httpx multipart polyfactory faker
        rich-click sniffio

(without 2_31, pip selects an llguidance that is too old). If commands there have a time limit of
ten minutes, pass ``--within 570``, so that the parts that were not reached are reported before the
command ends::

    pip install --no-index --no-deps --target packages wheels/*.whl
    export PYTHONPATH=packages
    check="python -m benchmarks.gpu_check --within 570 --json results.jsonl --parts"
    $check machine,attention,texts,sampling,memory,gaps    # 1: correctness
    $check gpt2,small,large,shared                         # 2: the main figures
    $check http,peer                                       # 3: other paths
    $check fp8,weights,tests                               # 4
    python -m benchmarks.gpu_table results.jsonl --into benchmarks/RESULTS.md
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DEFAULT_LIMIT = 540.0
"""Seconds per part."""

MIN_SECONDS = 20.0
"""With less time left a part is not started."""

NAMES = (
    "tests",
    "machine",
    "attention",
    "texts",
    "sampling",
    "memory",
    "gpt2",
    "small",
    "large",
    "shared",
    "fp8",
    "weights",
    "gaps",
    "host",
    "peer",
    "http",
)

MODELS = ("tiny", "gpt2", "qwen3-0.6b", "qwen3-8b")

MARK = "gpu-check-row:"
"""The start of a line with a row in the output of a part's process."""


def main(argv: list[str] | None = None) -> int:
    """Run the parts. Returns 1 if a check failed."""
    options = _parser().parse_args(argv)
    if options.make_models:
        return _make_models(tiny=options.tiny)
    if options.inside:
        return _run_inside(options)
    is_fine = True
    end = time.monotonic() + options.within
    for part in options.parts:
        print(f"== {part}", flush=True)
        for row in _run_outside(part, options, end - time.monotonic()):
            is_fine &= row.get("ok", True)
            print("  ", _line(row), flush=True)
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps({"part": part, "at": time.time(), **row}) + "\n")
    return 0 if is_fine else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--parts", type=_parts, default=NAMES, help="comma-separated")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="a tiny model and few requests")
    parser.add_argument("--limit", type=float, default=DEFAULT_LIMIT, help="seconds per part")
    parser.add_argument(
        "--within", type=float, default=math.inf, help="seconds for all parts together"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="append results to this file")
    parser.add_argument("--make-models", action="store_true", help="only make the models")
    parser.add_argument("--inside", choices=NAMES, help=argparse.SUPPRESS)
    return parser


def _parts(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(unknown)}")
    return names


def _run_outside(
    part: str, options: argparse.Namespace, seconds_left: float
) -> Iterator[dict[str, Any]]:
    """Run a part in its own process. Yields its rows, and one more if the part failed."""
    if seconds_left < MIN_SECONDS:
        yield {"name": part, "skipped": "no time left"}
        return
    limit = min(options.limit, seconds_left)
    command = [sys.executable, "-m", "benchmarks.gpu_check", "--inside", part]
    command += ["--device", options.device, *(["--tiny"] if options.tiny else [])]
    start = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True, errors="replace"
    )
    timed_out = threading.Event()

    def end() -> None:
        timed_out.set()
        os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(limit, end)
    timer.start()
    with process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                mark, _, row = line.partition(" ")
                if mark == MARK:
                    yield json.loads(row)
                else:
                    sys.stderr.write(line)
            status = process.wait()
        finally:
            timer.cancel()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if timed_out.is_set():
        yield {"name": part, "ok": False, "says": f"not finished after {limit:.3g} s"}
    elif status:
        yield {"name": part, "ok": False, "says": f"exited with status {status}"}
    else:
        yield {"name": f"{part} took", "seconds": time.monotonic() - start}


def _run_inside(options: argparse.Namespace) -> int:
    """Run one part in this process and print its rows."""
    from benchmarks.gpu.options import Options  # noqa: PLC0415 - imports torch
    from benchmarks.gpu.parts import PARTS  # noqa: PLC0415 - imports torch

    part = PARTS[options.inside]
    for row in part(Options(device=options.device, tiny=options.tiny)):
        print(MARK, json.dumps(_finite(row)), flush=True)
    return 0


def _make_models(*, tiny: bool) -> int:
    from bench.random_model import cached_random_model  # noqa: PLC0415 - imports msgspec

    for name in MODELS[:1] if tiny else MODELS:
        start = time.monotonic()
        print(cached_random_model(name), f"{time.monotonic() - start:.0f} s", flush=True)
    return 0


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN and infinity by None: JSON has neither."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in row.items()
    }


def _line(row: dict[str, Any]) -> str:
    """A row as text."""
    shown = {key: value for key, value in row.items() if key not in {"name", "ok"}}
    mark = {True: "ok", False: "FAILED", None: ""}[row.get("ok")]
    if "skipped" in row:
        mark = "skipped"
    figures = "  ".join(f"{key}={_number(value)}" for key, value in shown.items())
    return f"{row['name']}: {mark}  {figures}".rstrip()


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) and abs(value) < 1e4 else str(value)


if __name__ == "__main__":
    sys.exit(main())
