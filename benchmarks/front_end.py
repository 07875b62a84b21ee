"""What HTTP costs: CPU of the event loop per streamed token, and throughput beside a bare engine.

    python -m benchmarks.front_end cpu [--endpoint chat] [--streams 64] [--step-ms 10]
    python -m benchmarks.front_end throughput [--model DIR] [--streams 64]

``cpu`` starts the server as ``roseinfer serve`` runs it, over an engine without a model: real
sequences, the built-in model's tokenizer, and one token for each stream in every step, a step
every ``--step-ms``. A client in another process reads all streams. In the middle of the run, while
every stream is open, it counts what the event loop's thread does: CPU time, wake-ups (times it
went to sleep) and writes to sockets; and the core thread's CPU for text, and for everything. CPU
time is charged to a thread alone, so other work on the machine matters little; medians of
``--rounds``. Linux only: the counts are the kernel's.

``throughput`` runs the same requests through the model in process and through HTTP, taking turns,
and prints output tokens per second of both and the medians of their ratio. The client's own CPU
time is part of what HTTP costs on a machine with few cores; it is printed too. Let nothing else
run meanwhile.

Both run from the root of the repository.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import uvloop

from core.build import EngineInfo, LoadedEngine, load_engine
from core.builtin_model import path as builtin_path
from core.contract.messages import Add, EngineRequest, EngineStats, StepOutput
from core.contract.params import SamplingParams
from core.generation import Generation
from core.grammar.compiler import GrammarCompiler
from core.sampling.result import SampledTokens, SequenceResult
from core.sequence import Sequence
from core.text.tokenizer import Tokenizer
from core.thread import CoreThread
from server.__main__ import exit_process, run
from server.settings import parse_settings

MARGIN = 20
"""Steps at either end of a run that are not counted."""

TEXT = Path("README.md")
"""What the scripted engine says: prose, markup, code."""

PROMPT = "Tell me a story about a fox."
ROUTES = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


# The engine of ``cpu``.


class Counts:
    """What two threads have used so far, by the kernel's books. Core thread only."""

    def __init__(self) -> None:
        loop = threading.main_thread()
        assert loop.ident is not None
        self._clock = time.pthread_getcpuclockid(loop.ident)
        self._task = Path(f"/proc/self/task/{loop.native_id}")

    def read(self) -> dict[str, float]:
        """Totals: CPU seconds, sleeps, writes."""
        return {
            "loop_cpu": time.clock_gettime(self._clock),
            "loop_sleeps": self._number("status", "voluntary_ctxt_switches"),
            "loop_writes": self._number("io", "syscw"),
            "core_cpu": time.thread_time(),
        }

    def _number(self, file: str, name: str) -> int:
        found = re.search(rf"^{name}:\s*(\d+)", (self._task / file).read_text(), re.MULTILINE)
        assert found
        return int(found[1])


class PacedEngine:
    """A SteppingEngine whose every step gives every stream its next token.

    The first step waits for all streams. Prints the figures of a run as a line of JSON.
    """

    def __init__(self, tokenizer: Tokenizer, *, num_streams: int, interval: float) -> None:
        self._tokenizer = tokenizer
        self._ids = tokenizer.encode(TEXT.read_text(), add_special_tokens=False)
        self._num_streams = num_streams
        self._interval = interval
        self._counts = Counts()
        self._live: dict[str, Generation] = {}
        self._num_steps = 0  # of this run
        self._next_step = 0.0
        self._text_cpu = 0.0
        self._first: dict[str, float] = {}

    @property
    def has_work(self) -> bool:
        """See SteppingEngine."""
        return bool(self._live)

    def add(self, request: EngineRequest) -> None:
        """See SteppingEngine."""
        self._live[request.request_id] = Generation(Sequence(request, seed=0), self._tokenizer)

    def abort(self, request_id: str) -> None:
        """See SteppingEngine."""
        self._live.pop(request_id, None)

    def fail_all(self, message: str) -> list[StepOutput]:
        """See SteppingEngine."""
        live, self._live = self._live, {}
        return [StepOutput(request_id=request_id, error=message) for request_id in live]

    def stats(self) -> EngineStats:
        """See SteppingEngine."""
        return EngineStats(num_running=len(self._live), num_steps=self._num_steps)

    def step(self) -> list[StepOutput]:
        """Wait for the time of the next step, then give every stream a token."""
        now = time.monotonic()
        if self._num_steps == 0 and len(self._live) < self._num_streams:
            time.sleep(1e-3)
            return []
        self._next_step = max(self._next_step + self._interval, now)
        time.sleep(self._next_step - now)
        outputs = self._advance()
        self._measure()
        return outputs

    def _advance(self) -> list[StepOutput]:
        start = time.thread_time()
        outputs = []
        for number, generation in enumerate(list(self._live.values())):
            # streams do not say the same at the same time
            token_id = self._ids[(self._num_steps + 97 * number) % len(self._ids)]
            generation.advance(
                SequenceResult(SampledTokens([token_id]), []),
                frozenset(),
                num_computed_tokens=generation.sequence.num_tokens,
            )
            output = generation.report()
            if output is not None:
                outputs.append(output)
                if output.is_last:
                    del self._live[output.request_id]
        self._text_cpu += time.thread_time() - start
        self._num_steps += 1
        return outputs

    def _measure(self) -> None:
        if self._num_steps == MARGIN:
            self._text_cpu = 0.0
            self._first = self._counts.read()
        if self._live:
            left = min(
                generation.sequence.params.max_tokens - generation.sequence.num_output_tokens
                for generation in self._live.values()
            )
            if left != MARGIN:
                return
            num_steps = self._num_steps - MARGIN
            last = self._counts.read()
            used = {name: last[name] - self._first[name] for name in last}
            used["text_cpu"] = self._text_cpu
            print(json.dumps({"num_steps": num_steps, **used}), flush=True)
        else:
            self._num_steps = 0


def load_paced(num_streams: int, interval: float) -> LoadedEngine:
    tokenizer = Tokenizer.load(str(builtin_path()))
    info = EngineInfo(
        max_model_len=1 << 20,
        max_num_seqs=num_streams,
        vocab_size=len(tokenizer),
        num_kv_tokens=1 << 20,
        dtype="none",
        device="none",
    )
    compiler = GrammarCompiler(
        tokenizer.vocabulary, (tokenizer.eos_token_id or 0,), vocab_size=len(tokenizer)
    )
    engine: Any = PacedEngine(tokenizer, num_streams=num_streams, interval=interval)
    return LoadedEngine(engine, tokenizer, info, compiler)


# The client.


class Reader(asyncio.Protocol):
    """Sends one request and reads its streamed answer to the end, looking at nothing else."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._tail = b""
        self.num_events = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no such class
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Count events, and leave after the last."""
        self.num_events += data.count(b"data: ")  # a frame is never cut here: writes are small
        self._tail = (self._tail + data)[-32:]
        if b"[DONE]" in self._tail:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """See whether it was the end."""
        if error is None and b"[DONE]" in self._tail:
            self.done.set_result(None)
        else:
            self.done.set_exception(error or EOFError(self._tail))


async def read_streams(url: str, request: bytes, num_streams: int) -> int:
    """All streams at once; the number of events read."""
    host, port = url.removeprefix("http://").split(":")
    loop = asyncio.get_running_loop()
    pairs = [
        await loop.create_connection(lambda: Reader(request), host, int(port))
        for _ in range(num_streams)
    ]
    await asyncio.gather(*(reader.done for _, reader in pairs))
    return sum(reader.num_events for _, reader in pairs)


def request_bytes(endpoint: str, num_tokens: int) -> bytes:
    body: dict[str, Any] = {"stream": True, "max_tokens": num_tokens, "ignore_eos": True}
    if endpoint == "chat":
        body["messages"] = [{"role": "user", "content": PROMPT}]
    else:
        body["prompt"] = PROMPT
    data = json.dumps(body).encode()
    head = (
        f"POST {ROUTES[endpoint]} HTTP/1.1\r\nhost: bench\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


class Child:
    """This program again, as the process that is measured; it speaks in lines."""

    def __init__(self, *argv: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.front_end", *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self, pattern: str) -> str:
        """Wait for a line that matches; gives its first group."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.search(pattern, line):
                return found[1]
        raise SystemExit(f"the child ended with {self._process.wait()}")

    def say(self, line: str) -> None:
        """Give it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(30)


# The two programs.


def measure_cpu(options: argparse.Namespace) -> None:
    child = Child("serve-paced", f"--streams={options.streams}", f"--step-ms={options.step_ms}")
    try:
        url = child.line(r"^Listening on (\S+),")
        child.line(r"^(Serving)")
        request = request_bytes(options.endpoint, options.tokens)
        rounds = []
        for _ in range(options.rounds + 1):
            uvloop.run(read_streams(url, request, options.streams))
            rounds.append(json.loads(child.line(r"^(\{.*)")))
    finally:
        child.stop()
    print(f"{options.endpoint}, {options.streams} streams, a step every {options.step_ms} ms")
    for name, value in figures(rounds[1:], options.streams):  # the first warms up
        print(f"  {name:42} {value:8.2f}")


def figures(rounds: list[dict[str, float]], num_streams: int) -> Iterable[tuple[str, float]]:
    def median(value: Callable[[dict[str, float]], float]) -> float:
        return statistics.median(map(value, rounds))

    def per_token(name: str) -> float:
        return median(lambda r: r[name] / (r["num_steps"] * num_streams))

    yield "loop CPU per token, µs", 1e6 * per_token("loop_cpu")
    yield "loop wake-ups per step", median(lambda r: r["loop_sleeps"] / r["num_steps"])
    yield "socket writes per token", per_token("loop_writes")
    yield "core CPU per token, text only, µs", 1e6 * per_token("text_cpu")
    yield "core CPU per token, all of the thread, µs", 1e6 * per_token("core_cpu")


def measure_throughput(options: argparse.Namespace) -> None:
    model = [f"--model={options.model}"] if options.model else []
    bare = Child("bare", f"--streams={options.streams}", f"--tokens={options.tokens}", *model)
    server = Child("serve-model", f"--streams={options.streams}", *model)
    request = request_bytes("completions", options.tokens)
    num_tokens = options.streams * options.tokens
    rates: dict[str, list[float]] = {"in process": [], "HTTP": []}
    client_cpu = 0.0
    try:
        bare.line(r"^(ready)")
        url = server.line(r"^Listening on (\S+),")
        server.line(r"^(Serving)")
        for number in range(options.rounds + 1):
            bare.say("go")
            in_process = num_tokens / float(bare.line(r"^took (\S+)"))
            start, cpu = time.perf_counter(), time.process_time()
            uvloop.run(read_streams(url, request, options.streams))
            through_http = num_tokens / (time.perf_counter() - start)
            if number > 0:  # the first warms up
                client_cpu += (time.process_time() - cpu) / options.rounds
                rates["in process"].append(in_process)
                rates["HTTP"].append(through_http)
                print(f"  in process {in_process:8.1f} tok/s   HTTP {through_http:8.1f} tok/s")
    finally:
        bare.stop()
        server.stop()
    ratios = [http / bare for bare, http in zip(*rates.values(), strict=True)]
    for name, values in rates.items():
        print(f"{name:12} {statistics.median(values):8.1f} output tok/s")
    print(f"HTTP costs   {100 * (1 - statistics.median(ratios)):8.1f} % of throughput")
    print(f"client CPU   {1e6 * client_cpu / num_tokens:8.1f} µs per token")


# What the children do.


def serve_paced(options: argparse.Namespace) -> None:
    settings = parse_settings(["serve", "--port=0", "--log-level=warning"])
    exit_process(run(settings, lambda: load_paced(options.streams, options.step_ms / 1e3)))


def serve_model(options: argparse.Namespace) -> None:
    argv = ["serve", *([options.model] if options.model else [])]
    argv += ["--port=0", "--log-level=warning", f"--max-num-seqs={options.streams}"]
    exit_process(run(parse_settings(argv)))


def run_bare(options: argparse.Namespace) -> None:
    """Run the engine on its thread as a server does, with nobody to tell; a run for each line."""
    argv = ["serve", *([options.model] if options.model else [])]
    settings = parse_settings([*argv, f"--max-num-seqs={options.streams}"])
    loaded: list[LoadedEngine] = []
    ready, ended = threading.Event(), threading.Semaphore(0)

    def load() -> Any:
        loaded.append(load_engine(settings.model, settings.engine))
        return loaded[0].engine

    def count(outputs: list[StepOutput]) -> None:
        for output in outputs:
            assert output.error is None, output.error
            if output.is_last:
                ended.release()

    core = CoreThread(load, on_outputs=count, on_event=lambda _event: ready.set())
    core.start()
    ready.wait()
    prompt = tuple(loaded[0].tokenizer.encode(PROMPT, add_special_tokens=True))
    print("ready", flush=True)
    for number, _ in enumerate(sys.stdin):
        start = time.perf_counter()
        for stream in range(options.streams):
            params = SamplingParams(max_tokens=options.tokens, ignore_eos=True)
            core.submit(
                Add(
                    EngineRequest(
                        request_id=f"{number}-{stream}", prompt_token_ids=prompt, params=params
                    )
                )
            )
        for _ in range(options.streams):
            ended.acquire()
        print(f"took {time.perf_counter() - start}", flush=True)
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = {
        "cpu": measure_cpu,
        "throughput": measure_throughput,
        "serve-paced": serve_paced,  # these three are started by the first two
        "serve-model": serve_model,
        "bare": run_bare,
    }
    parser.add_argument("command", choices=commands)
    parser.add_argument("--endpoint", choices=ROUTES, default="chat")
    parser.add_argument("--model")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=240)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--step-ms", type=float, default=10.0)
    options = parser.parse_args()
    commands[options.command](options)


if __name__ == "__main__":
    main()
