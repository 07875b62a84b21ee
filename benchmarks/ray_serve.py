"""What Ray Serve costs: CPU time per token and time to the first token, beside a direct server.

    python -m benchmarks.ray_serve [--streams 1,16] [--tokens 300] [--rounds 5]

One direct server, and one replica behind Serve's proxy, both of the built-in model, which is the
worst case for what stands in front of it. The same clients read from both, in turns. The kernel's
counters give CPU time by process. Of a round's streams the median counts, and of the rounds the
best one, because other work only makes them worse. Needs ``roseinfer[ray]``. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from benchmarks.haproxy import cpu_seconds
from benchmarks.process import ServerProcess
from benchmarks.ray_cluster import RayCluster

ARGS = {"max_num_seqs": 32, "kv_cache_memory": "200MB", "log_level": "warning"}
PROMPT = "Tell me a story about a fox, a river and number {}."


@dataclass
class Way:
    """One way to the model: its port and the processes that serve it."""

    name: str
    port: int
    pids: Callable[[], dict[str, list[int]]]
    first: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    costs: dict[str, list[float]] = field(default_factory=dict)


async def read_stream(port: int, num_tokens: int, number: int) -> tuple[float, float]:
    """Seconds to the first token, and between two tokens."""
    body = json.dumps(
        {
            "stream": True,
            "max_tokens": num_tokens,
            "ignore_eos": True,
            "messages": [{"role": "user", "content": PROMPT.format(number)}],
        }
    ).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    start = time.perf_counter()
    writer.write(head.encode() + body)
    first = last = 0.0
    tail = b""
    while data := await reader.read(65536):
        tail = (tail + data)[-64:]
        if b'"content":"' in data:
            last = time.perf_counter()
            first = first or last
    writer.close()
    assert b"[DONE]" in tail, tail
    return first - start, (last - first) / max(1, num_tokens - 1)


async def read_streams(path: Way, num_streams: int, num_tokens: int, number: int) -> None:
    numbers = range(number * num_streams, (number + 1) * num_streams)
    start = time.perf_counter()
    read = await asyncio.gather(*(read_stream(path.port, num_tokens, n) for n in numbers))
    path.rates.append(num_streams * num_tokens / (time.perf_counter() - start))
    path.first.append(statistics.median(first for first, _ in read))
    path.between.append(statistics.median(between for _, between in read))


def run_round(path: Way, options: argparse.Namespace, num_streams: int, number: int) -> None:
    pids = path.pids()
    before = {name: sum(map(cpu_seconds, group)) for name, group in pids.items()}
    uvloop.run(read_streams(path, num_streams, options.tokens, number))
    for name, group in pids.items():
        used = sum(map(cpu_seconds, group)) - before[name]
        cost = 1e6 * used / (num_streams * options.tokens)
        path.costs.setdefault(name, []).append(cost)


def report(path: Way, num_streams: int) -> None:
    costs = {name: min(values) for name, values in path.costs.items()}
    shown = " + ".join(f"{name} {cost:.0f}" for name, cost in costs.items())
    print(
        f"{num_streams:3} streams  {path.name:10} first token {ms(path.first)} ms, between two "
        f"{ms(path.between)} ms, {max(path.rates):.0f} tokens/s, "
        f"CPU per token {sum(costs.values()):.0f} µs ({shown})",
        flush=True,
    )


def ms(values: list[float]) -> str:
    return f"{1e3 * min(values):.2f}"


def measure(options: argparse.Namespace) -> None:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in ARGS.items()]
    serve = [sys.executable, "-m", "server", "serve", *flags, "--threads=1"]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "direct.log"
        direct = ServerProcess(lambda port: [*serve, f"--port={port}"], log)
        with RayCluster() as cluster, direct:
            cluster.deploy(ARGS | {"num_cpus": 1})
            direct.wait_ready(120)
            for num_streams in map(int, options.streams.split(",")):
                paths = [
                    Way("direct", direct.port, lambda: {"server": [direct.pid]}),
                    Way("Ray Serve", cluster.port, lambda: parts_of(cluster)),
                ]
                for number in range(options.rounds + 1):
                    for path in paths:
                        run_round(path, options, num_streams, number)
                        if number == 0:  # a warm-up
                            path.first, path.between, path.rates, path.costs = [], [], [], {}
                for path in paths:
                    report(path, num_streams)


def parts_of(cluster: RayCluster) -> dict[str, list[int]]:
    """The processes of a cluster, by what they do."""
    replica = cluster.pids("ray::ServeReplica")
    proxy = cluster.pids("ray::ProxyActor")
    rest = set(cluster.pids("")) - {*replica, *proxy}
    return {"replica": replica, "proxy": proxy, "the rest of Ray": sorted(rest)}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ray_serve",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--streams", default="1,16", help="how many at once, joined by commas")
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
