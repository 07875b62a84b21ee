"""Start of a server: seconds from the command to readiness, and where they go.

    python -m benchmarks.start_server [MODEL ...] [--rounds 3] [--imports 20] [-- flags of serve]

Starts ``roseinfer serve MODEL`` in turns, each time a new process, by default for the built-in
model (``-``) and the random GPT-2 and Qwen3-0.6B; a MODEL may be a GGUF file. Prints medians: until
the socket listens, until the model is served, CPU seconds of the process until then, the stages of
loading as the server logs them, and milliseconds of the first answer and of later ones.
``--imports N`` also lists the N packages whose modules take longest to import.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from bench.random_model import cached_random_model
from benchmarks import host
from benchmarks.post import post
from benchmarks.process import ServerProcess, clean_environment

BUILT_IN = "-"

IMPORT_ALL = "import server.cli.serve; from transformers import AutoModelForCausalLM, AutoTokenizer"

TIMEOUT = 120.0

NUM_ANSWERS = 6

REQUEST = {"prompt": "Once upon a time there was a fox", "max_tokens": 4, "temperature": 0}


class Starting(ServerProcess):
    """A server whose output tells how far its start is."""

    def seconds_until(self, text: str, start: float) -> float:
        """Wait until the server has printed ``text``; seconds since ``start``."""
        while text not in self._log.read_text("utf-8", "replace"):
            if self._process.poll() is not None or time.monotonic() - start > TIMEOUT:
                raise SystemExit(f"the server did not start: {self._log_end()}")
            time.sleep(0.01)
        return time.monotonic() - start

    def stages(self) -> dict[str, float]:
        """The stages of the line ``loaded in 2.9 s: weights 0.31, ...``."""
        line = re.search(r"loaded in [0-9.]+ s: (.*)", self._log.read_text("utf-8", "replace"))
        parts = line[1].split(", ") if line else []
        return {
            name: float(seconds) for name, _, seconds in (part.rpartition(" ") for part in parts)
        }


def measure(model: str, flags: Sequence[str], log: Path) -> dict[str, float]:
    """Start a server, stop it, and return the seconds of its start."""

    def command(port: int) -> list[str]:
        named = [] if model == BUILT_IN else [model]
        serve = [sys.executable, "-m", "server", "serve", *named, "--port", str(port)]
        return [*serve, "--log-level", "info", *flags]

    start = time.monotonic()
    with Starting(command, log) as server:
        listening = server.seconds_until("Listening on", start)
        ready = server.seconds_until("Serving ", start)
        cpu, _ = host.tree_usage(server.pid)
        answers = [_seconds_of_an_answer(server.url) for _ in range(NUM_ANSWERS)]
        return {
            "listening": listening,
            "ready": ready,
            "CPU s": cpu,
            **server.stages(),
            "first answer ms": 1e3 * answers[0],
            "later ms": 1e3 * statistics.median(answers[1:]),
        }


def _seconds_of_an_answer(url: str) -> float:
    start = time.perf_counter()
    post(f"{url}/v1/completions", REQUEST)
    return time.perf_counter() - start


def slowest_imports(number: int) -> list[tuple[str, float]]:
    """CPU seconds of importing, by top-level package (two levels for transformers and torch)."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", IMPORT_ALL],
        env=clean_environment(),
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds: dict[str, float] = defaultdict(float)
    for own, name in re.findall(r"import time: +(\d+) \| +\d+ \| +(\S+)", done.stderr):
        parts = name.split(".")
        depth = 2 if parts[0] in {"torch", "transformers"} else 1
        seconds[".".join(parts[:depth])] += int(own) / 1e6
    return sorted(seconds.items(), key=lambda item: -item[1])[:number]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=[BUILT_IN, "gpt2", "qwen3-0.6b"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--imports", type=int, default=0, metavar="N")
    own, flags = sys.argv[1:], []
    if "--" in own:
        own, flags = own[: own.index("--")], own[own.index("--") + 1 :]
    options = parser.parse_args(own)
    places = {
        name: name if name == BUILT_IN or Path(name).exists() else str(cached_random_model(name))
        for name in options.models
    }
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="roseinfer-start-") as folder:
        for _ in range(options.rounds):
            for name, place in places.items():
                found[name].append(measure(place, flags, Path(folder) / "log"))
    for name, rows in found.items():
        medians = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        shown = ", ".join(f"{key} {value:.2f}" for key, value in medians.items())
        print(f"{'built-in' if name == BUILT_IN else name}: {shown}", flush=True)
    for package, seconds in slowest_imports(options.imports) if options.imports else ():
        print(f"{package:32} {seconds:6.3f}")


if __name__ == "__main__":
    main()
