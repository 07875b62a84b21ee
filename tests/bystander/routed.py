"""A router in front of the bystanders' server, and of scripted ones that attacks may break."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from compat_tests.support.http import Connection
from compat_tests.support.process import START_TIMEOUT
from compat_tests.support.waiting import eventually
from tests.support.routers import Router, scripted

STEADY = "steady"
"""The model of the bystanders, and of every request that names none."""

DYING, HANGING, FLOODING, RENAMED, TWINS = "dying", "hanging", "flooding", "renamed", "twins"
"""Models of attacks. The servers of TWINS cannot be reached."""

ANSWER_TIMEOUT = 10.0
"""Seconds that a server may be silent."""


def stalls_of_both(router: dict[str, int], server: dict[str, int]) -> dict[str, int]:
    """Stalls of two event loops: their number together, and the longest."""
    return {
        name: number + server[name] if name.startswith("num_") else max(number, server[name])
        for name, number in router.items()
    }


class RoutedServer(Router):
    """``roseinfer route``. What it holds is what it and the bystanders' server hold."""

    def __init__(self, folder: Path) -> None:
        config = {
            "default": STEADY,
            "answer_timeout": ANSWER_TIMEOUT,
            "models": {
                STEADY: {"serve": [], "preload": True},
                **{name: {"command": scripted(name)} for name in (DYING, HANGING, FLOODING)},
                RENAMED: {"command": scripted(RENAMED), "model": "its-name-there"},
                TWINS: {"url": ["http://127.0.0.1:1", "http://127.0.0.1:2"]},
            },
        }
        super().__init__(folder, config)

    def wait_ready(self, timeout: float = START_TIMEOUT) -> RoutedServer:
        super().wait_ready(timeout)

        def is_loaded() -> bool:
            state: str = self.model_stats(STEADY)["state"]
            return state == "ready"

        eventually(is_loaded, timeout=timeout, what="the model")
        return self

    @property
    def pids(self) -> list[int]:
        return [self.pid, self._inner()[0]]

    def stats(self) -> dict[str, Any]:
        """Those of the bystanders' server, and what the router has open. Stalls are of both."""
        own = super().stats()
        with Connection("localhost", 0, uds=self._inner()[1]) as connection:
            found: dict[str, Any] = connection.request("GET", "/stats").json
        inside = {name: model["num_running"] for name, model in own["models"].items()}
        loops = stalls_of_both(own["event_loop"], found["event_loop"])
        more = {"open": own["num_open"], "waiting": own["num_waiting"], "inside": inside}
        return found | more | {"event_loop": loops}

    def model_stats(self, model: str) -> dict[str, Any]:
        found: dict[str, Any] = super().stats()["models"][model]
        return found

    def _inner(self) -> tuple[int, str]:
        """Process and socket of the bystanders' server."""
        for pid in self.children():
            argv = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if "--uds" in argv and STEADY in argv and "serve" in argv:
                return pid, argv[argv.index("--uds") + 1]
        raise AssertionError("the bystanders' server has ended")
