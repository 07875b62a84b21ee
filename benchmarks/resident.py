"""Resident memory of a served model, beside the size of its file.

    python -m benchmarks.resident FILE.gguf ... [-- flags of serve]

Serves the built-in model, then each FILE, with the same flags and a KV cache of 8 MiB, asks each
for a short answer, and waits until freed memory has been returned
(server/generation/trimmer.py). Python, torch and the server are in both. What a file's server holds
more is what the file costs: weights, tokenizer and workspaces. Prints it in MB and as a ratio to
the size of the file. A larger cache comes beside that: its size is the operator's choice.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.post import post
from benchmarks.process import ServerProcess
from server.generation.trimmer import DELAY

CACHE = ("--kv-cache-memory", "8MiB", "--max-model-len", "64")

START_TIMEOUT = 120.0


@dataclass(frozen=True, kw_only=True)
class Resident:
    """Resident bytes of a process: all, and those of memory that is no file's."""

    total: int
    anonymous: int

    @classmethod
    def of(cls, pid: int) -> Resident:
        """Read them from Linux."""
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()[1:]
        sizes = {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines}
        return cls(total=sizes["Rss"], anonymous=sizes["Anonymous"])


def measure(model: str | None, flags: Sequence[str] = ()) -> Resident:
    """Serve a model, None for the built-in one, and measure its server after an answer."""

    def command(port: int) -> list[str]:
        named = [] if model is None else [model]
        serve = [sys.executable, "-m", "server", "serve", *named, "--port", str(port)]
        return [*serve, "--device", "cpu", *CACHE, "--log-level", "warning", *flags]

    with (
        tempfile.TemporaryDirectory(prefix="roseinfer-resident-") as folder,
        ServerProcess(command, Path(folder) / "log") as server,
    ):
        server.wait_ready(START_TIMEOUT)
        post(f"{server.url}/v1/completions", {"prompt": "A short", "max_tokens": 8})
        time.sleep(10 * DELAY)
        return Resident.of(server.pid)


def ratio(model: Resident, base: Resident, size: int) -> float:
    """What a model takes beyond the built-in one, as a share of ``size`` bytes.

    The larger of two figures: of all memory, and of that in no file. The system may drop pages of
    files, such as libraries, from one of the servers.
    """
    return max(model.total - base.total, model.anonymous - base.anonymous) / size


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    own, flags = sys.argv[1:], []
    if "--" in own:
        own, flags = own[: own.index("--")], own[own.index("--") + 1 :]
    options = parser.parse_args(own)
    base = measure(None, flags)
    print(f"built-in model: {_shown(base)}", flush=True)
    for file in options.files:
        found, size = measure(str(file), flags), file.stat().st_size
        print(
            f"{file.name} ({size / 1e6:.0f} MB): {_shown(found)}; more than the built-in model: "
            f"{ratio(found, base, size):.2f} of the file",
            flush=True,
        )


def _shown(found: Resident) -> str:
    return f"{found.total / 1e6:.0f} MB resident, {found.anonymous / 1e6:.0f} of them in no file"


if __name__ == "__main__":
    main()
