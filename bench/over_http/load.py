"""One run of a load against a server, over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from bench.over_http.client import CompletionClient
from bench.records import RequestTimes
from bench.timetable import Timetable
from bench.workload import Request


async def run_http(
    client: CompletionClient,
    requests: Sequence[Request],
    timetable: Timetable,
    *,
    concurrency: int | None = None,
    on_end: Callable[[], object] = lambda: None,
) -> list[RequestTimes]:
    """Submit the requests as they are due; return their records in the same order.

    At most ``concurrency`` are in flight. ``on_end`` is called when a request has ended.
    """
    slots = asyncio.Semaphore(concurrency or len(requests))
    clock = time.perf_counter

    async def submit(request: Request, due: float) -> RequestTimes:
        try:
            return await client.run(request.prompt, request.max_tokens, due=due)
        finally:
            slots.release()
            on_end()

    tasks: list[asyncio.Task[RequestTimes]] = []
    start = last = clock()
    async with asyncio.TaskGroup() as group:
        for index, request in enumerate(requests):
            due = timetable.due(index, start=start, last=last)
            if due > clock():
                await asyncio.sleep(due - clock())
            await slots.acquire()
            tasks.append(
                group.create_task(submit(request, clock() if timetable.is_closed else due))
            )
            await asyncio.sleep(0)  # lets the task submit its request
            last = clock()
    return [task.result() for task in tasks]
