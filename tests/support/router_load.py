"""Clients that read scripted streams of several models, one after the other, until told to stop."""

from __future__ import annotations

import random
import threading
from types import TracebackType
from typing import Self

from tests.support.routers import CHAT, Router, is_whole


class Load:
    """Within ``with``, each client asks for a random model again and again."""

    def __init__(self, router: Router, models: list[str], *, num_clients: int) -> None:
        self.num_whole = 0
        self.lost: list[str] = []
        self._router, self._models = router, models
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(seed),))
            for seed in range(num_clients)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self, draw: random.Random) -> None:
        while not self._stop.is_set():
            number = draw.randrange(1, 8)
            model = draw.choice(self._models)
            body = {"model": model, "stream": True, "n": number, "delay_ms": 1}
            try:
                reply = self._router.post(CHAT, body)
                text = "" if is_whole(reply.body, number) else f"{reply.status} {reply.body!r}"
            except Exception as error:  # noqa: BLE001 - a lost stream, whatever it is
                text = repr(error)
            with self._lock:
                if text:
                    self.lost.append(f"{model}: {text}")
                else:
                    self.num_whole += 1
