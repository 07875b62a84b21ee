"""Runs scenarios on an engine in this process; the difference to a server is the cost of HTTP.

    python -m benchmarks.in_process DIR [flags of roseinfer serve]

Prints ``{"ready": true}`` when the model is loaded. Then each line on stdin is a job,
``{"scenario": NAME, "scale": 1.0, "seed": "...", "limit": 60}``, and is answered with a line of
figures. Exits at the end of its input. ``benchmarks/compare.py`` starts it. The event loop that
receives the outputs also generates the load.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "5000")  # as the server sets it, before torch is imported

from benchmarks.engine_client import EngineClient
from benchmarks.load import run_scenario
from benchmarks.scenarios import scenarios
from server.process import SWITCH_INTERVAL
from server.settings import Settings, parse_settings


async def answer_jobs(settings: Settings) -> None:
    client = EngineClient(settings)
    max_model_len = (await client.loaded()).info.max_model_len
    gc.collect()
    gc.freeze()
    _print({"ready": True})
    while line := await asyncio.to_thread(sys.stdin.readline):
        job = json.loads(line)
        scenario = scenarios(max_model_len, job["scale"])[job["scenario"]]
        _print(await run_scenario(client, scenario, seed=job["seed"], limit=job["limit"]))
    client.close()


def _print(what: dict[str, Any]) -> None:
    """Print one line of JSON."""
    print(json.dumps(what), flush=True)


def main() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL)
    asyncio.run(answer_jobs(parse_settings(["serve", *sys.argv[1:]])))


if __name__ == "__main__":
    main()
