"""Output tokens per second of the same requests in process and over HTTP, in turn."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import threading
import time

import uvloop

from benchmarks.front_end.child import Child
from benchmarks.front_end.client import PROMPT, read_streams, request_bytes
from core.assembly.build import LoadedEngine, load_engine
from core.contract.messages import Add, EngineRequest, StepOutput
from core.contract.params import SamplingParams
from core.engine.thread import CoreThread, SteppingEngine
from server.cli.main import run
from server.cli.program import exit_process
from server.settings.settings import Settings, parse_settings


def measure(options: argparse.Namespace) -> None:
    model = [f"--model={options.model}"] if options.model else []
    bare = Child("bare", f"--streams={options.streams}", f"--tokens={options.tokens}", *model)
    server = Child("serve-model", f"--streams={options.streams}", *model)
    request = request_bytes("completions", options.tokens)
    num_tokens = options.streams * options.tokens
    rates: dict[str, list[float]] = {"in process": [], "HTTP": []}
    client_cpu = 0.0
    try:
        bare.read(r"^(ready)")
        url = server.read_url()
        for number in range(options.rounds + 1):
            bare.write("go")
            in_process = num_tokens / float(bare.read(r"^took (\S+)"))
            start, cpu = time.perf_counter(), time.process_time()
            uvloop.run(read_streams(url, request, options.streams))
            over_http = num_tokens / (time.perf_counter() - start)
            if number > 0:  # the first round is a warm-up
                client_cpu += (time.process_time() - cpu) / options.rounds
                rates["in process"].append(in_process)
                rates["HTTP"].append(over_http)
                print(f"  in process {in_process:8.1f} tok/s   HTTP {over_http:8.1f} tok/s")
    finally:
        bare.stop()
        server.stop()
    ratios = [http / bare for bare, http in zip(*rates.values(), strict=True)]
    for name, values in rates.items():
        print(f"{name:12} {statistics.median(values):8.1f} output tok/s")
    print(f"HTTP costs   {100 * (1 - statistics.median(ratios)):8.1f} % of throughput")
    print(f"client CPU   {1e6 * client_cpu / num_tokens:8.1f} µs per token")


def serve(options: argparse.Namespace) -> None:
    exit_process(run(_settings(options, "--port=0", "--log-level=warning")))


def run_bare(options: argparse.Namespace) -> None:
    """Run the engine on its core thread as a server does; one run per line on stdin."""
    settings = _settings(options)
    loaded: list[LoadedEngine] = []
    ready, ended = threading.Event(), threading.Semaphore(0)

    def load() -> SteppingEngine:
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
            request_id = f"{number}-{stream}"
            core.submit(
                Add(EngineRequest(request_id=request_id, prompt_token_ids=prompt, params=params))
            )
        for _ in range(options.streams):
            ended.acquire()
        print(f"took {time.perf_counter() - start}", flush=True)
    os._exit(0)


def _settings(options: argparse.Namespace, *flags: str) -> Settings:
    model = [options.model] if options.model else []
    return parse_settings(["serve", *model, f"--max-num-seqs={options.streams}", *flags])
