"""CPU time of the event loop per request that is refused because the queue is full."""

from __future__ import annotations

import argparse
import socket
import statistics
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.front_end.child import Child
from benchmarks.front_end.client import request_bytes
from benchmarks.front_end.paced import load_paced
from server.cli.main import run
from server.cli.program import exit_process
from server.settings.settings import parse_settings

NUM_PLACES = 2
"""Requests that run or wait when the queue is full."""

ENDLESS = 1 << 16
"""Streams that the engine waits for: more than there are, so it generates nothing."""


def measure(options: argparse.Namespace) -> None:
    child = Child("serve-full")
    holders: list[socket.socket] = []
    try:
        url = urlsplit(child.read_url())
        assert url.hostname
        assert url.port
        address, request = (url.hostname, url.port), request_bytes(options.endpoint, 16)
        for _ in range(NUM_PLACES):
            holders.append(socket.create_connection(address))
            holders[-1].sendall(request)
        while not _is_refused(address, request):
            continue
        ways = {"on a new connection": _send_on_new, "on an open one": _send_on_open}
        found: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(options.rounds + 1):
            for name, send in ways.items():
                before = _loop_seconds(child.pid)
                send(address, request, options.streams, options.tokens)
                num_requests = options.streams * options.tokens
                found[name].append((_loop_seconds(child.pid) - before) / num_requests)
    finally:
        for holder in holders:
            holder.close()
        child.stop()
    print(f"{options.endpoint}, {options.streams} at a time")
    for name, values in found.items():
        loop = 1e6 * statistics.median(values[1:])  # the first round is a warm-up
        print(f"  {'loop CPU per refused request ' + name + ', µs':58}{loop:8.1f}")


def serve(_options: argparse.Namespace) -> None:
    settings = parse_settings(
        [
            *("serve", "--port=0", "--log-level=warning", "--max-num-seqs=1"),
            f"--max-queued-requests={NUM_PLACES - 1}",
        ]
    )
    exit_process(run(settings, lambda: load_paced(ENDLESS, 1.0)))


def _send_on_new(address: tuple[str, int], request: bytes, num_clients: int, count: int) -> None:
    """Send so many requests by each client, every one over a connection of its own."""
    request = request.replace(b"\r\n", b"\r\nconnection: close\r\n", 1)
    for _ in range(count):
        clients = [socket.create_connection(address) for _ in range(num_clients)]
        for client in clients:
            client.sendall(request)
        for client in clients:
            _read_refusal(client)
            client.close()


def _send_on_open(address: tuple[str, int], request: bytes, num_clients: int, count: int) -> None:
    """Send so many requests by each client, all over one connection."""
    clients = [socket.create_connection(address) for _ in range(num_clients)]
    for client in clients:  # a connection whose first request is refused ends
        client.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
        data = b""
        while not data.endswith(b"}"):
            data += client.recv(65536)
    for _ in range(count):
        for client in clients:
            client.sendall(request)
        for client in clients:
            _read_refusal(client)
    for client in clients:
        client.close()


def _is_refused(address: tuple[str, int], request: bytes) -> bool:
    with socket.create_connection(address) as client:
        client.settimeout(0.5)
        client.sendall(request)
        try:
            return client.recv(65536).startswith(b"HTTP/1.1 429 ")
        except TimeoutError:
            return False


def _read_refusal(client: socket.socket) -> None:
    data = client.recv(65536)  # an answer is one write
    if not data.startswith(b"HTTP/1.1 429 "):
        raise SystemExit(f"not refused: {data[:100]!r}")


def _loop_seconds(pid: int) -> float:
    """CPU seconds of the thread that runs the event loop, as Linux counts them."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9
