"""TrialReplica: a replica that is slow enough to be watched, and fails when it is told to."""

from __future__ import annotations

import os
import time
from pathlib import Path

from server.ray.replica import Replica

FOLDER = "RAY_TRIAL_FOLDER"
"""Environment variable: where a file ``sick.PID`` makes the engine of that process die."""

STEP_SECONDS = 0.02


class TrialReplica(Replica):
    """Every step takes STEP_SECONDS more.

    Answers have the process id of their replica, and how many threads torch computes with.
    """

    def load(self, settings):
        loaded = super().load(settings)
        step = loaded.engine.step
        sign = Path(os.environ[FOLDER]) / f"sick.{os.getpid()}"

        def slow_step():
            if sign.exists():
                raise RuntimeError("the engine was told to fail")
            time.sleep(STEP_SECONDS)
            return step()

        loaded.engine.step = slow_step
        return loaded

    def __serve_build_asgi_app__(self):
        app = super().__serve_build_asgi_app__()
        import torch  # noqa: PLC0415 - after the replica has set up its process

        pid = (b"x-replica", str(os.getpid()).encode())

        async def tagged(scope, receive, send):
            async def send_tagged(message):
                if message["type"] == "http.response.start":
                    threads = (b"x-threads", str(torch.get_num_threads()).encode())
                    message["headers"] = [*message["headers"], pid, threads]
                await send(message)

            await app(scope, receive, send_tagged)

        return tagged
