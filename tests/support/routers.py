"""Routers in processes of their own, in front of scripted servers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from compat_tests.support.http import Reply
from compat_tests.support.process import ServerProcess

SCRIPT = Path(__file__).with_name("scripted_upstream.py")
CHAT = "/v1/chat/completions"


def scripted(name: str, *flags: str) -> list[str]:
    """The command of a scripted server, as a model's ``command``."""
    return [sys.executable, "-I", str(SCRIPT), name, "--uds", "{socket}", *flags]


def toml_of(config: dict[str, Any]) -> str:
    """A file of a router. JSON's strings, numbers and arrays are TOML's."""
    lines = [f"{name} = {json.dumps(v)}" for name, v in config.items() if name != "models"]
    for name, model in config["models"].items():
        lines.append(f"[models.{json.dumps(name)}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in model.items() if key != "env"]
        if "env" in model:
            lines.append(f"[models.{json.dumps(name)}.env]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in model["env"].items()]
    return "\n".join(lines) + "\n"


class Router(ServerProcess):
    """``roseinfer route`` on a free loopback port."""

    def __init__(self, folder: Path, config: dict[str, Any], *flags: str, **options: Any) -> None:
        path = folder / "models.toml"
        path.write_text(toml_of(config))
        command = ("-m", "server", "route")
        super().__init__("--config", str(path), *flags, command=command, **options)

    def post(self, path: str, body: Any, headers: dict[str, str | None] | None = None) -> Reply:
        """One whole POST on a connection of its own."""
        with self.connect() as connection:
            reply = connection.request("POST", path, body, headers)
            assert reply.body is not None
            return reply

    def ask(self, model: str, **fields: Any) -> Reply:
        """One whole chat request of a scripted server."""
        return self.post(CHAT, {"model": model, **fields})

    def model_stats(self, model: str) -> dict[str, Any]:
        found: dict[str, Any] = self.stats()["models"][model]
        return found

    def children(self) -> list[int]:
        """The processes that it has started."""
        path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(pid) for pid in path.read_text().split()]


def events_of(body: bytes) -> list[Any]:
    """The data of a stream's events; ``[DONE]`` as None. Comments are left out."""
    events = []
    for event in body.split(b"\n\n"):
        for line in event.split(b"\n"):
            if line.startswith(b"data: "):
                data = line.removeprefix(b"data: ")
                events.append(None if data == b"[DONE]" else json.loads(data))
    return events


def is_whole(body: bytes, num_events: int) -> bool:
    """Whether a scripted stream arrived from its first event to its end, in order."""
    events = events_of(body)
    numbers = [event and event.get("sequence_number") for event in events]
    return numbers == [*range(num_events), None]


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def still_running(pids: Iterable[int]) -> list[int]:
    return [pid for pid in pids if is_running(pid)]
