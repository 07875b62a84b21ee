"""Compares two source trees: the same in-process benchmark on each, taking turns.

    git worktree add ../old COMMIT
    python -m benchmarks.alternate ../old . [--rounds 5] [--model gpt2] [--python PYTHON]

Each turn is a process of ``python -m server bench --random-model MODEL`` in one tree. S1 is one
stream (32 tokens in, 128 out), S2 is 64 requests 20 ms apart (1 to 8 in, 128 out). Every other
round goes in the opposite order. Prints the medians of both trees, the ratio of the medians, and
the range of the ratios of single rounds; a ratio above 1 means that the second tree is better.
``--flags`` passes further flags to both, for example ``--flags "--dtype bfloat16"``. Run nothing
else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.process import clean_environment
from benchmarks.results import Figure, rounded

SCENARIOS = {
    "s1": "--num-requests 3 --concurrency 1 --prompt-len 32 --max-new-tokens 128",
    "s2": "--num-requests 64 --submit-interval-ms 20 --prompt-len 1-8 --max-new-tokens 128",
}
"""Flags that old and new versions of ``roseinfer bench`` accept."""

FIGURES = (
    Figure(scenario="s1", key="tpot_ms.p50", title="TPOT p50, ms"),
    Figure(scenario="s1", key="ttft_ms.p50", title="TTFT p50, ms"),
    Figure(scenario="s2", key="output_tok_s", title="tok/s", is_rate=True),
    Figure(scenario="s2", key="ttft_ms.p50", title="TTFT p50, ms"),
    Figure(scenario="s2", key="itl_ms.p99", title="ITL p99, ms"),
)
"""Keys are paths in the report's ``median.client``."""


def run_bench(python: str, tree: Path, scenario: str, flags: Sequence[str]) -> dict[str, Any]:
    """Run one turn; returns ``median.client`` of its report. Raises RuntimeError if it fails."""
    with tempfile.TemporaryDirectory(prefix="roseinfer-alternate-") as folder:
        report = Path(folder) / "report.json"
        command = [python, "-m", "server", "bench", *flags, *SCENARIOS[scenario].split()]
        done = subprocess.run(
            [*command, "--json", str(report)],
            cwd=tree,
            env=clean_environment() | {"PYTHONPATH": str(tree.resolve())},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{tree}: {shlex.join(command)}\n{done.stdout}{done.stderr}")
        client: dict[str, Any] = json.loads(report.read_text("utf-8"))["median"]["client"]
        return client


def take_turns(
    python: str, trees: Sequence[Path], num_rounds: int, flags: Sequence[str]
) -> dict[str, list[list[dict[str, Any]]]]:
    """All rounds: scenario -> tree -> round -> figures of that turn."""
    found: dict[str, list[list[dict[str, Any]]]] = {name: [[], []] for name in SCENARIOS}
    for number in range(num_rounds):
        for scenario, by_tree in found.items():
            for index in (0, 1) if number % 2 == 0 else (1, 0):
                turn = run_bench(python, trees[index], scenario, flags)
                by_tree[index].append(turn)
                shown = [figure for figure in FIGURES if figure.scenario == scenario]
                values = ", ".join(f"{f.title} {rounded(value_of(turn, f))}" for f in shown)
                print(f"round {number + 1} {scenario} {trees[index]}: {values}", flush=True)
    return found


def compare(found: dict[str, list[list[dict[str, Any]]]]) -> list[str]:
    """One line per figure: both medians, their ratio, and the range of the rounds' ratios."""
    lines = [f"{'':22}{'first':>10}{'second':>10}{'ratio':>8}   rounds"]
    for figure in FIGURES:
        first, second = (
            [value_of(turn, figure) for turn in turns] for turns in found[figure.scenario]
        )
        old, new = statistics.median(first), statistics.median(second)
        ratios = [figure.ratio(ours, theirs) for ours, theirs in zip(second, first, strict=True)]
        lines.append(
            f"{figure.label:22}{rounded(old):>10}{rounded(new):>10}{figure.ratio(new, old):>8.3f}"
            f"   {min(ratios):.3f} to {max(ratios):.3f}"
        )
    return lines


def value_of(turn: dict[str, Any], figure: Figure) -> float:
    value: Any = turn
    for part in figure.key.split("."):
        value = value[part]
    return float(value)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", nargs=2, type=Path, help="two checkouts of this repository")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default="gpt2", help="shape of the random model")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of both trees")
    parser.add_argument("--flags", default="", help="further flags of `roseinfer bench`")
    options = parser.parse_args()
    flags = ["--random-model", options.model, *shlex.split(options.flags)]
    found = take_turns(options.python, options.trees, options.rounds, flags)
    print("\n".join(compare(found)))


if __name__ == "__main__":
    main()
