"""The protocol of a process that runs scenarios by itself: lines of JSON on stdin and stdout.

Prints ``{"ready": true}`` when the model is loaded. Then each line on stdin is a job,
``{"scenario": NAME, "scale": 1.0, "seed": "...", "limit": 60}``, and is answered with a line of
figures. Between two requests of one stream it prints ``{"pause": true}`` and goes on with the next
line. Ends with its input. ``benchmarks.running`` is the other side.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any, Protocol

from benchmarks.load import Client, run_scenario
from benchmarks.scenarios import scenarios

PAUSE = {"pause": True}


class JobClient(Client, Protocol):
    """A client that draws tokens with ``sampling``, the fields of ``Scenario.sampling``."""

    sampling: Mapping[str, float]


async def answer_jobs(client: JobClient, max_model_len: int) -> None:
    """Answer jobs until the input ends."""
    _print({"ready": True})
    while line := await asyncio.to_thread(sys.stdin.readline):
        job = json.loads(line)
        scenario = scenarios(max_model_len, job["scale"])[job["scenario"]]
        client.sampling = scenario.sampling
        found = await run_scenario(
            client, scenario, seed=job["seed"], limit=job["limit"], pause=_pause
        )
        _print(found)


async def _pause() -> None:
    _print(PAUSE)
    await asyncio.to_thread(sys.stdin.readline)


def _print(what: dict[str, Any]) -> None:
    """Print one line of JSON."""
    print(json.dumps(what), flush=True)
