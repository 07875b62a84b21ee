"""Runs scenarios on an engine in this process; the difference to a server is the cost of HTTP.

    python -m benchmarks.in_process DIR [flags of roseinfer serve]

``benchmarks/compare.py`` starts it; ``benchmarks/jobs.py`` has the protocol. The event loop that
receives the outputs also generates the load.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys

os.environ.setdefault("GOMP_SPINCOUNT", "5000")  # as the server sets it, before torch is imported

from benchmarks.engine_client import EngineClient
from benchmarks.jobs import answer_jobs
from server.cli.program import SWITCH_INTERVAL
from server.settings.settings import Settings, parse_settings


async def serve_jobs(settings: Settings) -> None:
    client = EngineClient(settings)
    max_model_len = (await client.loaded()).info.max_model_len
    gc.collect()
    gc.freeze()
    await answer_jobs(client, max_model_len)
    client.close()


def main() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL)
    asyncio.run(serve_jobs(parse_settings(["serve", *sys.argv[1:]])))


if __name__ == "__main__":
    main()
