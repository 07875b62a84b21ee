"""What a hop costs: CPU time per streamed chunk of `roseinfer route`, of HAProxy, and without one.

    python -m benchmarks.routing [--streams 32] [--chunks 400] [--delay-ms 10] [--rounds 5]

A scripted server streams small events, one write each, at a steady rate. The same clients read them
directly, through `roseinfer route`, through HAProxy and through `relay.c`, in turns. The kernel's
counters give each proxy's CPU time (user and system), so other processes matter little. The relay
is a recv and a send and nothing else: what it takes is the kernel's part of any hop. HAProxy is
left out if it is not installed, the relay without a C compiler. Also prints the median time to the
first event, and each proxy's resident memory. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import uvloop

from benchmarks.haproxy import cpu_seconds
from benchmarks.hops import hops

ROOT = Path(__file__).resolve().parents[1]


class Paced(asyncio.Protocol):
    """A server: each request gets ``chunks`` events, one every ``delay`` seconds."""

    def __init__(self, chunks: int, delay: float) -> None:
        self._chunks, self._delay = chunks, delay
        self._loop = asyncio.get_running_loop()
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment] # uvloop's

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self._data.startswith(b"GET"):
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            self._transport.close()
        elif self._data.endswith(b"}"):
            self._data = b""
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            self._transport.write(head + b"transfer-encoding: chunked\r\n\r\n")
            self._loop.create_task(self._stream())

    async def _stream(self) -> None:
        start = self._loop.time()
        for number in range(self._chunks):
            event = {"id": "chatcmpl-0123456789", "object": "chat.completion.chunk"}
            choice = {"index": 0, "delta": {"content": f" token{number}"}, "finish_reason": None}
            data = b"data: " + json.dumps(event | {"choices": [choice]}).encode() + b"\n\n"
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))
            await asyncio.sleep(max(0.0, start + (number + 1) * self._delay - self._loop.time()))
        self._transport.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


class Reader(asyncio.Protocol):
    """A client: one request, counted events."""

    def __init__(self) -> None:
        self.num_events = 0
        self.first = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        body = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "Hi"}]}'
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
        head += b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        self._start = time.perf_counter()
        self._transport: asyncio.Transport = transport  # type: ignore[assignment] # uvloop's
        self._transport.write(head + body)

    def data_received(self, data: bytes) -> None:
        count = data.count(b"data: ")
        if count and not self.num_events:
            self.first = time.perf_counter() - self._start
        self.num_events += count
        if data.endswith(b"0\r\n\r\n"):
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(exc)


def serve_paced(chunks: int, delay: float) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Paced(chunks, delay), "127.0.0.1", 0)
        print(f"Listening on {server.sockets[0].getsockname()[1]}", flush=True)
        await server.serve_forever()

    uvloop.run(serve())


async def read_streams(port: int, num_streams: int, num_events: int) -> float:
    """Read so many streams at once; returns the median time to the first event."""
    loop = asyncio.get_running_loop()
    readers = [
        (await loop.create_connection(Reader, "127.0.0.1", port))[1] for _ in range(num_streams)
    ]
    await asyncio.gather(*(reader.done for reader in readers))
    assert all(reader.num_events == num_events for reader in readers), "events were lost"
    return statistics.median(reader.first for reader in readers)


def resident(pid: int) -> float:
    """MiB of memory that a process has resident."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


@contextlib.contextmanager
def paced_server(options: argparse.Namespace) -> Iterator[int]:
    """The scripted server in a process of its own; yields its port."""
    flags = [f"--chunks={options.chunks}", f"--delay-ms={options.delay_ms}"]
    argv = [sys.executable, "-m", "benchmarks.routing", "--serve", *flags]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline().rpartition(" ")[2])
        finally:
            process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.routing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--chunks", type=int, default=400)
    parser.add_argument("--delay-ms", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve_paced(options.chunks, options.delay_ms / 1000)
    else:
        measure(options)


def measure(options: argparse.Namespace) -> None:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = stack.enter_context(paced_server(options))
        proxies = hops(upstream, folder)
        ports, pids = {"direct": upstream}, {}
        for name, proxy in proxies.items():
            stack.enter_context(proxy)
            proxy.wait_ready(20)
            ports[name], pids[name] = proxy.port, proxy.pid
        run_rounds(options, ports, pids)


def run_rounds(options: argparse.Namespace, ports: dict[str, int], pids: dict[str, int]) -> None:
    num_events = options.chunks + 1
    total = options.streams * num_events
    costs: dict[str, list[float]] = {name: [] for name in pids}
    firsts: dict[str, list[float]] = {name: [] for name in ports}
    for number in range(options.rounds + 1):
        for name, port in ports.items():
            before = cpu_seconds(pids[name]) if name in pids else 0.0
            first = uvloop.run(read_streams(port, options.streams, num_events))
            if number > 0:  # the first round is a warm-up
                firsts[name].append(first)
                if name in pids:
                    costs[name].append((cpu_seconds(pids[name]) - before) / total)
    print(f"{options.streams} streams of {options.chunks} events, one every {options.delay_ms} ms")
    for name in ports:
        print(f"{name:16} first event {1e3 * statistics.median(firsts[name]):7.2f} ms", end="")
        if name in pids:
            cost = 1e6 * statistics.median(costs[name])
            print(f"   {cost:6.1f} µs of CPU per event   {resident(pids[name]):6.1f} MiB", end="")
        print()


if __name__ == "__main__":
    main()
