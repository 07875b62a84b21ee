"""Structured output: validity of the answers, and the cost of the constraints.

    python -m benchmarks.structured validity [--count 100]
    python -m benchmarks.structured overhead [--shape qwen3-0.6b] [--model DIR] [--dtype bfloat16]

``validity`` starts a server with the built-in model. At temperature 1 it requests JSON for random
schemas, and required and named calls of tools with random parameters. Every answer that ended by
itself (finish reason ``stop`` or ``tool_calls``) must validate against its schema. Answers that
reached the length limit are counted separately. Exits with code 1 if an answer was wrong.

``overhead`` compares the time of a decode step of 32 sequences in process: unconstrained, and
constrained by a JSON schema each. The two take turns; the program prints the ratio of the medians
for each turn. Weights are random, with the shape and the vocabulary size of Qwen3-0.6B; they are
made on the spot unless ``--model`` names a directory (which is created if it does not exist). Run
nothing else meanwhile. ``--shape tiny`` only shows that the program works.

Both need the development dependencies.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.structured.model import SHAPES
from benchmarks.structured.overhead import overhead
from benchmarks.structured.validity import check_all


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.structured",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("validity")
    command.add_argument("--count", type=int, default=100)
    command = commands.add_parser("overhead")
    command.add_argument("--shape", choices=SHAPES, default="qwen3-0.6b")
    command.add_argument("--model", type=Path)
    command.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    command.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    if options.command == "validity":
        sys.exit(not check_all(options.count))
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or Path(folder) / "model"
        overhead(options.shape, model, options.dtype, options.turns)


if __name__ == "__main__":
    main()
