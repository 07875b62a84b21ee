"""Runs the tests that need a GPU."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.gpu.options import Options
from benchmarks.gpu.rows import Row

TESTS = Path(__file__).parents[2] / "tests"


def tests(options: Options) -> Iterator[Row]:
    """Run ``pytest -m gpu`` on the files that contain such tests."""
    missing = [name for name in ("pytest", "hypothesis") if not importlib.util.find_spec(name)]
    if missing:
        yield {"name": "pytest -m gpu", "skipped": f"not installed: {', '.join(missing)}"}
        return
    files = [str(file) for file in TESTS.rglob("test_*.py") if "mark.gpu" in file.read_text()]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider"]
    # other versions of the libraries may warn; that is not a failure here
    command += ["-W", "default", *files]
    if options.tiny:
        command += ["--collect-only"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TESTS.parent)
    for line in done.stdout.splitlines()[-30:]:
        print("   ", line, file=sys.stderr)
    last = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1:]
    yield {"name": "pytest -m gpu", "ok": done.returncode == 0, "says": " ".join(last)}
