"""What the steps of a load spend, beside the limits of the same minute.

    python -m benchmarks.profiles gpt2:s1 gpt2:s1:int8 FILE.gguf:s1 [--scale 0.5]

A load is MODEL:SCENARIO, and a quantization if any. The model is a known shape or a GGUF file, the
scenario one of ``benchmarks/scenarios.py`` with equal requests. Each load has an engine of its own,
in process, and the machine is probed before and after it. Prints Markdown, a row for each kind of
step that takes a tenth of the time: milliseconds of a mean step; of products and attention also the
rate at which they read or multiply, and its share of the probe's. The limit is the time of all of
these at the rates of the probe.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from bench.profile_report import KindReport
from benchmarks.probe import probe
from benchmarks.process import clean_environment
from benchmarks.profile_load import Load
from benchmarks.profile_rows import HEAD, Profile
from benchmarks.table import markdown


def profile_of(load: Load, python: str = sys.executable) -> Profile:
    """Run the load. Raises CalledProcessError if that fails."""
    with tempfile.TemporaryDirectory(prefix="roseinfer-profile-") as folder:
        report = Path(folder) / "report.json"
        command = [python, "-m", "server", "bench", "--profile", *load.command]
        probes = [probe()]
        subprocess.run(
            [*command, "--json", str(report)],
            env=clean_environment(),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        probes.append(probe())
        found = json.loads(report.read_text("utf-8"))
    kinds = msgspec.convert(found["profile"], list[KindReport])
    return Profile(load, kinds, sum(run["client"]["wall_s"] for run in found["runs"]), probes)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("loads", nargs="+", metavar="MODEL:SCENARIO[:QUANTIZATION]")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the scenarios' work")
    options = parser.parse_args()
    try:
        loads = [Load.of(name, options.scale) for name in options.loads]
    except ValueError as error:
        parser.error(str(error))
    rows = [list(HEAD), *(row for load in loads for row in profile_of(load).rows())]
    print(markdown(rows))


if __name__ == "__main__":
    main()
