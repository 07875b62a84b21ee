"""The proxies that ``benchmarks.routing`` compares, each in front of one server."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.haproxy import find_haproxy
from benchmarks.probe import compiled
from benchmarks.process import ServerProcess

HAPROXY = """
global
    maxconn 4096
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 600s
    timeout server 600s
    option http-no-delay
frontend front
    bind 127.0.0.1:{port}
    default_backend servers
backend servers
    server one 127.0.0.1:{upstream}
"""


def hops(upstream: int, folder: Path) -> dict[str, ServerProcess]:
    """By name, each proxy that this machine has, not started yet. ``upstream`` is a port."""
    proxies = {"roseinfer route": _router(upstream, folder)}
    if program := find_haproxy():
        proxies["HAProxy"] = _haproxy(program, upstream, folder)
    if program := compiled("relay.c"):
        proxies["relay"] = _relay(program, upstream, folder)
    return proxies


def _router(upstream: int, folder: Path) -> ServerProcess:
    config = folder / "models.toml"
    config.write_text(f'[models.m]\nurl = "http://127.0.0.1:{upstream}"\n')
    argv = [sys.executable, "-m", "server", "route", "--config", str(config)]
    argv.append("--log-level=warning")
    return ServerProcess(lambda port: [*argv, f"--port={port}"], folder / "router.log")


def _haproxy(program: str, upstream: int, folder: Path) -> ServerProcess:
    def command(port: int) -> list[str]:
        recipe = folder / "haproxy.cfg"
        recipe.write_text(HAPROXY.format(port=port, upstream=upstream))
        return [program, "-db", "-f", str(recipe)]

    return ServerProcess(command, folder / "haproxy.log")


def _relay(program: str, upstream: int, folder: Path) -> ServerProcess:
    return ServerProcess(lambda port: [program, str(port), str(upstream)], folder / "relay.log")
