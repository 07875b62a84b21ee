"""Goodput under overload: answers in time per second, at capacity and at many times it.

    python -m benchmarks.overload [--model DIR] [--factor 10] [--seconds 20]

Starts a server and sends two loads of equal requests for ``--seconds`` each:

- *capacity*: as many clients as the server decodes sequences, each of which asks again at once;
- *overload*: arrivals at ``--factor`` times the rate that capacity answered, whether or not earlier
  requests have been answered. Clients do not repeat a refused request.

An answer counts as goodput if it is complete within ``--deadline`` seconds, and before the load's
``--seconds`` are over: afterwards nothing overloads the server. Prints one line a load:
goodput, statuses, the median time of a 429, the server's CPU time per answer and the processors
that the client took; and the ratio of the two goodputs. On a small machine the client takes
processor time from the server, ten times as much in overload. So the last line has a second ratio,
of the good answers per second of the processor time that the client left (all processors' time less
the client's own): what is missing from 100 % there is what refusals cost the server. Run nothing
else.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import msgspec
import uvloop

from bench.over_http.connection import ConnectionFailed, ServerAddress, exchange
from benchmarks import host
from benchmarks.process import ServerProcess

START_TIMEOUT = 600.0
LOST = 0
"""Status of a request without an answer."""


@dataclass(frozen=True, kw_only=True)
class Goodput:
    """The good answers of one load, which took ``seconds``.

    ``client`` is the seconds of CPU time that the client used meanwhile.
    """

    num_good: int
    seconds: float
    client: float
    num_processors: int

    @property
    def per_second(self) -> float:
        return self.num_good / self.seconds

    @property
    def per_processor_second(self) -> float:
        """Good answers per second of CPU time that the client did not use."""
        return self.num_good / (self.num_processors * self.seconds - self.client)

    def kept(self, peak: Goodput) -> str:
        """How much of the goodput of ``peak`` this is."""
        return (
            f"overload keeps {self.per_second / peak.per_second:.0%} of the goodput, "
            f"{self.per_processor_second / peak.per_processor_second:.0%} "
            "per second of processor time that the client left"
        )


@dataclass
class Load:
    """Sends the requests of one load and counts their answers. Times are in seconds.

    Answers after ``end`` (of ``time.perf_counter``) do not count as goodput.
    """

    endpoint: ServerAddress
    request: bytes
    deadline: float
    end: float = float("inf")
    statuses: Counter[int] = field(default_factory=Counter)
    refusals: list[float] = field(default_factory=list)
    num_good: int = 0

    async def send(self) -> None:
        """Send one request and note its end."""
        start = time.perf_counter()
        try:
            answer = await exchange(self.endpoint, self.request, lambda _now, _body: None)
            status = answer.status
        except ConnectionFailed:
            status = LOST
        now = time.perf_counter()
        seconds = now - start
        self.statuses[status] += 1
        if status == 429:
            self.refusals.append(seconds)
        self.num_good += status == 200 and seconds <= self.deadline and now <= self.end

    async def closed(self, num_clients: int, seconds: float) -> None:
        """Clients that ask again as soon as they are answered."""
        end = time.perf_counter() + seconds

        async def client() -> None:
            while time.perf_counter() < end:
                await self.send()

        await asyncio.gather(*(client() for _ in range(num_clients)))

    async def open(self, rate: float, seconds: float) -> None:
        """Arrivals at a fixed rate."""
        start = time.perf_counter()
        tasks = set()
        for number in range(int(rate * seconds)):
            await asyncio.sleep(start + number / rate - time.perf_counter())
            task = asyncio.create_task(self.send())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)


async def _measure(options: argparse.Namespace, server: ServerProcess) -> None:
    endpoint = ServerAddress(server.url)
    body = msgspec.json.encode(
        {"prompt": "Once upon a time", "max_tokens": options.tokens, "ignore_eos": True}
    )
    request = endpoint.request("POST", "/v1/completions", body)

    async def run(name: str, rate: float | None) -> Goodput:
        before = host.usage(server.pid)
        load = Load(endpoint, request, options.deadline, end=before.at + options.seconds)
        at_end = asyncio.create_task(_usage_at(load.end, server.pid))
        if rate is None:
            await load.closed(options.sequences, options.seconds)
        else:
            await load.open(rate, options.seconds)
        end = await at_end
        cpu = host.usage(server.pid).tree - before.tree
        found = Goodput(
            num_good=load.num_good,
            seconds=end.at - before.at,
            client=end.own - before.own,
            num_processors=len(os.sched_getaffinity(0)),
        )
        refused = f"{1000 * median(load.refusals):.0f} ms" if load.refusals else "none"
        print(
            f"{name}: {found.per_second:.1f} good answers/s, statuses {dict(load.statuses)}, "
            f"median 429 {refused}, {1000 * cpu / load.statuses[200]:.0f} ms CPU per answer, "
            f"the client took {found.client / found.seconds:.2f} of {found.num_processors} "
            f"processors, {found.per_processor_second:.1f} good answers per second of the rest",
            flush=True,
        )
        return found

    await Load(endpoint, request, options.deadline).closed(options.sequences, 2.0)  # warm up
    peak = await run("capacity", None)
    overload = await run("overload", options.factor * peak.per_second)
    print(overload.kept(peak))


async def _usage_at(end: float, pid: int) -> host.Usage:
    """The CPU use so far at the time ``end`` (``time.perf_counter``)."""
    await asyncio.sleep(end - time.perf_counter())
    return host.usage(pid)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overload",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model")
    parser.add_argument("--factor", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--deadline", type=float, default=10.0)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--queued", type=int, default=64)
    options = parser.parse_args()

    def command(port: int) -> list[str]:
        model = [options.model] if options.model else []
        flags = {
            "--port": port,
            "--max-num-seqs": options.sequences,
            "--max-queued-requests": options.queued,
            "--log-level": "warning",
        }
        given = [str(part) for flag in flags.items() for part in flag]
        return [sys.executable, "-m", "server", "serve", *model, *given]

    with (
        tempfile.TemporaryDirectory() as folder,
        ServerProcess(command, Path(folder) / "server.log") as server,
    ):
        server.wait_ready(START_TIMEOUT)
        uvloop.run(_measure(options, server))


if __name__ == "__main__":
    main()
