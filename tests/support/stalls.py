"""A stall of an application's event loop, made on purpose."""

from __future__ import annotations

import time
from typing import Any

import anyio

from server.observe.stalls import BEAT, LIMIT
from tests.support.asgi import Exchange, ask
from tests.support.engines import settle


async def check_a_stall_is_counted(app: Any) -> None:
    """Compute on the event loop while a request is open; ``/stats`` must tell it."""
    open_one = Exchange("POST", "/v1/chat/completions", chunks=[b"{"], is_complete=False)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(open_one.run, app)
        await settle()
        end = time.thread_time() + LIMIT + 2 * BEAT
        while time.thread_time() < end:
            pass
        await settle()
        stats = (await ask(app, "GET", "/stats")).json["event_loop"]
        open_one.disconnect()
    assert stats["num_busy_stalls"] >= 1
    assert stats["longest_busy_stall_ms"] >= LIMIT * 1000
