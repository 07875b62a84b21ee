"""The cost of metrics and records of requests: two source trees, measured in turn.

    git worktree add ../old COMMIT
    python -m benchmarks.observing ../old . [--rounds 5] [--python PYTHON]

``COMMIT`` is one without metrics and records. In each turn a tree runs ``benchmarks.host_step``
(the time of a decode step on the host, without the model) and ``benchmarks.front_end cpu`` (the
CPU time of the event loop and of the core thread per streamed token). Prints the least value of
each figure over all rounds in both trees, their difference and their ratio. The least value is
what other processes disturb least.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.process import clean_environment

COMMANDS = (
    "benchmarks.host_step --rows 1,8,64 --steps 400",
    "benchmarks.front_end cpu --rounds 3 --tokens 300 --streams 32",
)

_STEP = re.compile(r"^ *(?P<rows>\d+) rows: (?P<ms>[\d.]+) ms per step$", re.MULTILINE)
_CPU = re.compile(r"^  (?P<name>\S.*CPU per token.*?), µs +(?P<us>[\d.]+)$", re.MULTILINE)

Figures = dict[str, float]
"""Microseconds by the name of the figure."""


def figures_in(output: str) -> Figures:
    """The figures in the output of one of the commands."""
    steps = {
        f"step of {found['rows']} rows, host": 1e3 * float(found["ms"])
        for found in _STEP.finditer(output)
    }
    return steps | {m["name"]: float(m["us"]) for m in _CPU.finditer(output)}


def turn(python: str, tree: Path) -> Figures:
    """Run the commands once in a tree."""
    found: Figures = {}
    for command in COMMANDS:
        done = subprocess.run(
            [python, "-m", *command.split()],
            cwd=tree,
            env=clean_environment() | {"PYTHONPATH": str(tree.resolve()), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        figures = figures_in(done.stdout)
        if done.returncode != 0 or not figures:
            raise SystemExit(f"{tree}: {command}\n{done.stdout}{done.stderr}")
        found |= figures
    return found


def compare(old: Iterable[Figures], new: Iterable[Figures]) -> list[str]:
    """One line per figure: the least values, their difference, their ratio."""
    first, second = _least(old), _least(new)
    lines = [f"{'microseconds':44}{'old':>9}{'new':>9}{'more':>8}{'ratio':>8}"]
    for name, before in first.items():
        after = second[name]
        lines.append(
            f"{name:44}{before:9.2f}{after:9.2f}{after - before:8.2f}{after / before:8.3f}"
        )
    return lines


def _least(rounds: Iterable[Figures]) -> Figures:
    least: Figures = {}
    for figures in rounds:
        for name, value in figures.items():
            least[name] = min(value, least.get(name, value))
    return least


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", nargs=2, type=Path, help="two checkouts of this repository")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--python", default=sys.executable, help="the interpreter of both trees")
    options = parser.parse_args()
    found: tuple[list[Figures], list[Figures]] = ([], [])
    for number in range(options.rounds):
        for index in (0, 1) if number % 2 == 0 else (1, 0):
            found[index].append(turn(options.python, options.trees[index]))
            print(f"round {number + 1} {options.trees[index]}: {found[index][-1]}", flush=True)
    print("\n".join(compare(*found)))


if __name__ == "__main__":
    main()
