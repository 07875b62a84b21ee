"""Fleet: slow replicas behind Serve, what is sent to them, and what becomes of it."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.ray_cluster import RayCluster
from compat_tests.support import sse
from compat_tests.support.http import Clock, Connection, ConnectionEnded, Reply, strict_json
from compat_tests.support.waiting import eventually, pause

CHAT = "/v1/chat/completions"
REPLICA = "tests.ray.trial:TrialReplica"

MAX_NUM_SEQS = 8
CAPACITY = MAX_NUM_SEQS + 8
"""Requests that a replica takes at once."""

MAX_QUEUED = 32

PATIENCE = 120.0
"""Seconds within which Serve must have replaced a replica, however busy the machine is."""

ARGS = {
    "replicas": 2,
    "num_cpus": 0.2,
    "max_num_seqs": MAX_NUM_SEQS,
    "max_queued_requests": MAX_QUEUED,
    "kv_cache_memory": "64MB",
    "log_level": "warning",
    "drain_timeout": 60,
}

_numbers = itertools.count()


def chat(num_tokens: int, text: str = "", **fields: Any) -> dict[str, Any]:
    """A request of its own conversation, unless ``text`` begins it."""
    message = {"role": "user", "content": text or f"Tell me story {next(_numbers)}."}
    return {"messages": [message], "max_tokens": num_tokens, "ignore_eos": True, **fields}


@dataclass
class Stream:
    """A streamed request, read on a thread of its own."""

    port: int
    num_tokens: int
    text: str = ""
    status: int = 0
    replica: int = 0
    body: bytes = b""
    is_cut: bool = False
    ended: float = 0.0
    """``time.monotonic()`` at its end."""

    def __post_init__(self) -> None:
        self.began = threading.Event()

    def read(self) -> Stream:
        try:
            with Connection("127.0.0.1", self.port, timeout=PATIENCE) as connection:
                body = chat(self.num_tokens, self.text, stream=True)
                reply = connection.request("POST", CHAT, body)
                self.status = reply.status
                self.replica = int(reply.header("x-replica") or 0)
                for piece in reply.pieces():
                    self.body += piece
                    self.began.set()
        except (ConnectionEnded, ConnectionError):
            self.is_cut = True
        finally:
            self.began.set()
            self.ended = time.monotonic()
        return self

    @property
    def is_whole(self) -> bool:
        """Whether it has ended as a stream of this length does."""
        if self.is_cut or not self.body.endswith(sse.DONE + b"\n\n"):
            return False
        chunks = sse.payloads(self.body)
        ends = [choice["finish_reason"] for chunk in chunks for choice in chunk.get("choices", ())]
        return "length" in ends

    @property
    def error(self) -> dict[str, Any] | None:
        """The error event that it ended with."""
        last = self.body.removesuffix(sse.DONE + b"\n\n").rstrip().rpartition(b"\n\n")[2]
        if self.is_cut or not last.startswith(b'data: {"error"'):
            return None
        error: dict[str, Any] = strict_json(last[6:])["error"]
        return error


@dataclass
class Probes:
    """Short requests, one after the other, while something happens."""

    answers: list[tuple[float, int]] = field(default_factory=list)
    """When each began, and its status; 0 if the connection was cut."""

    def since(self, moment: float) -> Counter[int]:
        """Statuses of those that began after a moment."""
        return Counter(status for began, status in self.answers if began > moment)


class Fleet:
    """Replicas of TrialReplica behind one proxy."""

    def __init__(self, cluster: RayCluster, folder: Path) -> None:
        """``folder`` is that of TrialReplica."""
        self.cluster = cluster
        self.folder = folder
        self.streams: list[Stream] = []
        self._deployed: Any = None

    @property
    def port(self) -> int:
        return self.cluster.port

    def deploy(self, options: dict[str, Any] | None = None, **args: Any) -> float:
        """Replace all replicas, also if nothing has changed; seconds it took."""
        self._deployed = (args, options)
        return self.cluster.deploy(ARGS | args, replica=REPLICA, options=options)

    def ready(self, options: dict[str, Any] | None = None, **args: Any) -> Fleet:
        """Have a fleet of these arguments, all of whose replicas run and are idle."""
        if self._deployed != (args, options):
            self.deploy(options, **args)
        self.wait_replicas(2)
        self.wait_idle()
        return self

    def wait_replicas(self, number: int) -> float:
        """Wait for so many replicas, all of which run; seconds until then."""
        clock = Clock()
        eventually(
            lambda: self.replica_states() == {"RUNNING": number} and len(self.busy()) == number,
            timeout=PATIENCE,
            interval=0.2,
            what=f"{number} replicas",
        )
        return clock.seconds

    def replica_states(self) -> dict[str, int]:
        states = self.cluster.status()["replicas"]
        return {name: number for name, number in states.items() if number}

    def busy(self) -> list[int]:
        """Requests in each live replica's engine, running or waiting."""
        return [s["num_running"] + s["num_waiting"] for s in self.cluster.replicas()]

    def wait_idle(self, timeout: float = PATIENCE) -> float:
        """Seconds until no replica has a request."""
        clock = Clock()
        eventually(lambda: sum(self.busy()) == 0, timeout=timeout, what="idle replicas")
        return clock.seconds

    def ask(
        self, body: Any = None, method: str = "POST", path: str = CHAT, **headers: str
    ) -> Reply:
        """One request on a connection of its own. The reply is read to its end."""
        with Connection("127.0.0.1", self.port, timeout=PATIENCE) as connection:
            reply = connection.request(method, path, body, dict(headers))
            assert reply.body is not None
            return reply

    @contextlib.contextmanager
    def streaming(
        self, number: int, num_tokens: int, *texts: str, have_begun: bool = True
    ) -> Iterator[list[Future[Stream]]]:
        """Streams of the conversations ``texts``, in turns. Gives their futures.

        They have begun, unless that is not asked for.
        """
        streams = [
            Stream(self.port, num_tokens, text)
            for text in itertools.islice(itertools.cycle(texts or ("",)), number)
        ]
        with ThreadPoolExecutor(number) as pool:
            futures = [pool.submit(stream.read) for stream in streams]
            for stream in streams if have_begun else ():
                assert stream.began.wait(PATIENCE)
            self.streams = streams
            yield futures

    @contextlib.contextmanager
    def full(self, num_tokens: int) -> Iterator[None]:
        """Both replicas have as many streams as they take; at its end, all have ended whole."""
        with self.streaming(2 * CAPACITY, num_tokens, have_begun=False) as futures:
            eventually(lambda: sum(self.busy()) == 2 * CAPACITY, timeout=PATIENCE)
            yield
            assert all(stream.is_whole for stream in results(futures))

    def conversations(self) -> tuple[str, str]:
        """The beginnings of two conversations whose hashes are those of different replicas."""
        found: dict[str | None, str] = {}
        while len(found) < 2:
            text = f"Hello number {next(_numbers)}!"
            found[self.ask(chat(1, text)).header("x-replica")] = text
            assert next(_numbers) < 10_000, "one replica gets everything"
        first, second = found.values()
        return first, second

    def both_streaming(
        self, number: int, num_tokens: int
    ) -> contextlib.AbstractContextManager[list[Future[Stream]]]:
        """Streams that have begun, half of them on each replica."""
        return self.streaming(number, num_tokens, *self.conversations())

    @contextlib.contextmanager
    def probing(self) -> Iterator[Probes]:
        """Send short requests meanwhile."""
        probes = Probes()
        stop = threading.Event()

        def probe() -> None:
            while not stop.is_set():
                began, status = time.monotonic(), 0
                with contextlib.suppress(ConnectionError, ConnectionEnded, TimeoutError):
                    status = self.ask(chat(2)).status
                probes.answers.append((began, status))
                pause(0.05)

        thread = threading.Thread(target=probe)
        thread.start()
        try:
            yield probes
        finally:
            stop.set()
            thread.join()


def outcome(streams: list[Stream]) -> str:
    """How streams have ended, in words."""
    whole = sum(stream.is_whole for stream in streams)
    errors = sum(stream.error is not None for stream in streams)
    other = len(streams) - whole - errors
    return f"{whole} whole, {errors} with an error event" + (f", {other} cut" if other else "")


def results(futures: list[Future[Stream]]) -> list[Stream]:
    return [future.result(PATIENCE) for future in futures]
