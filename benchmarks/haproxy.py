"""HAProxy with the recipe of deploy/ in front of servers on this machine.

    python -m benchmarks.haproxy [--streams 16] [--rounds 3]

measures what it costs: CPU time per streamed token, of the server alone, and of the server and
HAProxy, in turns. The server is ``roseinfer serve`` over an engine without a model, as in
``benchmarks.front_end``; the kernel charges CPU time to one process, so others matter little.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import uvloop

from benchmarks.front_end.child import ROOT, Child
from benchmarks.front_end.client import read_streams, request_bytes
from benchmarks.process import ServerProcess

CONFIG = ROOT / "deploy" / "haproxy.cfg"
BIND = "127.0.0.1:8080"
SERVERS = ("127.0.0.1:8001", "127.0.0.1:8002")
"""The addresses that the recipe has."""


def find_haproxy() -> str | None:
    """The path of the program."""
    return shutil.which("haproxy") or shutil.which("haproxy", path="/usr/local/sbin:/usr/sbin")


def recipe(bind: str, servers: Sequence[str]) -> str:
    """The recipe's text with other addresses. One server takes the places of both."""
    text = CONFIG.read_text("utf-8").replace(BIND, bind)
    for address, server in zip(SERVERS, itertools.cycle(servers), strict=False):
        text = text.replace(address, server.removeprefix("http://"))
    return text


def haproxy(servers: Sequence[str], folder: Path) -> ServerProcess:
    """HAProxy on a free port in front of these URLs. A context manager."""

    def command(port: int) -> list[str]:
        file = folder / "haproxy.cfg"
        file.write_text(recipe(f"127.0.0.1:{port}", servers), "utf-8")
        return [find_haproxy() or "haproxy", "-db", "-f", str(file)]

    return ServerProcess(command, folder / "haproxy.log")


def cpu_seconds(pid: int) -> float:
    """CPU time of all live threads of a process, as the kernel's scheduler counts it."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def measure(num_streams: int, num_tokens: int, num_rounds: int) -> dict[str, float]:
    """Median microseconds of CPU time per token: server direct, server behind, HAProxy."""
    request = request_bytes("chat", num_tokens)
    child = Child("serve-paced", f"--streams={num_streams}", "--step-ms=10")
    rounds: list[dict[str, float]] = []
    try:
        url = child.read_url()
        with tempfile.TemporaryDirectory() as folder, haproxy([url], Path(folder)) as proxy:
            proxy.wait_ready(30)
            for _ in range(num_rounds + 1):
                uvloop.run(read_streams(url, request, num_streams))
                direct = json.loads(child.read(r"^(\{.*)"))
                before = cpu_seconds(proxy.pid)
                uvloop.run(read_streams(proxy.url, request, num_streams))
                after = cpu_seconds(proxy.pid)
                behind = json.loads(child.read(r"^(\{.*)"))
                rounds.append(
                    {
                        "server, direct": _per_token(direct, num_streams),
                        "server behind HAProxy": _per_token(behind, num_streams),
                        "HAProxy": 1e6 * (after - before) / (num_tokens * num_streams),
                    }
                )
    finally:
        child.stop()
    return {name: statistics.median(r[name] for r in rounds[1:]) for name in rounds[0]}


def _per_token(figures: dict[str, float], num_streams: int) -> float:
    seconds = figures["loop_cpu"] + figures["core_cpu"]
    return 1e6 * seconds / (figures["num_steps"] * num_streams)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.haproxy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if find_haproxy() is None:
        raise SystemExit("needs haproxy")
    print(f"CPU time per token, µs; {options.streams} streams, a step every 10 ms")
    for name, value in measure(options.streams, options.tokens, options.rounds).items():
        print(f"  {name:24} {value:8.1f}")


if __name__ == "__main__":
    main()
