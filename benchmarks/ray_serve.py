"""CPU time per token and time to the first token: a direct server, and Ray Serve.

    python -m benchmarks.ray_serve [--streams 1,16] [--tokens 300] [--rounds 5]

Both serve the built-in model, directly and as one replica behind Serve's proxy. Its steps are
short, so that the proxy costs the most beside them. The same clients read from both, in turns. The
kernel's counters give CPU time by process. A round gives the medians of its streams. The report has
the best round of each figure, because other work only makes rounds worse. Needs
``roseinfer[ray]``. Linux only.
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
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks.haproxy import cpu_seconds
from benchmarks.process import ServerProcess
from benchmarks.ray_cluster import RayCluster

ARGS = {"max_num_seqs": 32, "kv_cache_memory": "200MB", "log_level": "warning"}
PROMPT = "Tell me a story about a fox, a river and number {}."


@dataclass(frozen=True)
class Target:
    """What clients read from."""

    name: str
    port: int
    pids: Callable[[], dict[str, list[int]]]
    """The processes that serve it, by what they do."""


@dataclass(frozen=True)
class Round:
    """Figures of one round."""

    first: float
    """Seconds to the first token, the median of the streams."""
    between: float
    """Seconds between two tokens, the median of the streams."""
    rate: float
    """Tokens per second, of all streams."""
    costs: dict[str, float]
    """Microseconds of CPU time per token, by what the processes do."""


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


async def read_streams(
    port: int, num_streams: int, num_tokens: int, number: int
) -> list[tuple[float, float]]:
    """``read_stream`` of each stream, all at once. Every round ``number`` has its own prompts."""
    numbers = range(number * num_streams, (number + 1) * num_streams)
    return await asyncio.gather(*(read_stream(port, num_tokens, n) for n in numbers))


def run_round(target: Target, num_streams: int, num_tokens: int, number: int) -> Round:
    total = num_streams * num_tokens
    pids = target.pids()
    before = {name: sum(map(cpu_seconds, group)) for name, group in pids.items()}
    start = time.perf_counter()
    streams = uvloop.run(read_streams(target.port, num_streams, num_tokens, number))
    seconds = time.perf_counter() - start
    used = {name: sum(map(cpu_seconds, group)) - before[name] for name, group in pids.items()}
    return Round(
        first=statistics.median(first for first, _ in streams),
        between=statistics.median(between for _, between in streams),
        rate=total / seconds,
        costs={name: 1e6 * cpu / total for name, cpu in used.items()},
    )


def report(name: str, num_streams: int, rounds: list[Round]) -> None:
    """Print the best of the rounds, each figure by itself."""
    first = 1e3 * min(one.first for one in rounds)
    between = 1e3 * min(one.between for one in rounds)
    costs = {part: min(one.costs[part] for one in rounds) for part in rounds[0].costs}
    shown = " + ".join(f"{part} {cost:.0f}" for part, cost in costs.items())
    print(
        f"{num_streams:3} streams  {name:10} first token {first:.2f} ms, between two "
        f"{between:.2f} ms, {max(one.rate for one in rounds):.0f} tokens/s, "
        f"CPU per token {sum(costs.values()):.0f} µs ({shown})",
        flush=True,
    )


def measure(options: argparse.Namespace) -> None:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in ARGS.items()]
    serve = [sys.executable, "-m", "server", "serve", *flags, "--threads=1"]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "direct.log"
        direct = ServerProcess(lambda port: [*serve, f"--port={port}"], log)
        with RayCluster() as cluster, direct:
            cluster.deploy(ARGS | {"num_cpus": 1})
            direct.wait_ready(120)
            targets = [
                Target("direct", direct.port, lambda: {"server": [direct.pid]}),
                Target("Ray Serve", cluster.port, lambda: parts_of(cluster)),
            ]
            for num_streams in map(int, options.streams.split(",")):
                rounds: dict[str, list[Round]] = {target.name: [] for target in targets}
                for number in range(options.rounds + 1):
                    for target in targets:
                        one = run_round(target, num_streams, options.tokens, number)
                        rounds[target.name].append(one)
                for name, found in rounds.items():
                    report(name, num_streams, found[1:])  # the first round is a warm-up


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
