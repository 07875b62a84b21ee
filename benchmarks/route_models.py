"""Three models where one fits: `roseinfer route` swaps real servers under load and loses nothing.

    python -m benchmarks.route_models [--swaps 12] [--clients 6] [--max-loaded 1] [--model DIR]

The models are the built-in one, a random one of GPT-2's shape, and the one of ``--model``: by
default SmolLM2 135M, where ``make test-real`` has fetched it. Each client asks for a random model,
for chats and completions, streamed and whole, again and again. A stream counts as lost unless it
has its status, its finish reason and its end marker. Prints swaps, requests by model, the seconds
that loads took, and what was lost; exits with 1 if anything was.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path

from bench.random_model import cached_random_model
from benchmarks.post import post

ROOT = Path(__file__).resolve().parents[1]
SMOL = Path.home() / ".cache" / "roseinfer" / "real-models" / "smollm2-135m-instruct"
NUM_TOKENS = 24


class Clients:
    """Threads that ask for random models until they are told to stop."""

    def __init__(self, url: str, chats: dict[str, bool], number: int) -> None:
        """``chats`` says which models have a chat template."""
        self.counts: Counter[str] = Counter()
        self.lost: list[str] = []
        self._url, self._chats = url, chats
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(seed),))
            for seed in range(number)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, draw: random.Random) -> None:
        while not self._stop.is_set():
            model = draw.choice(sorted(self._chats))
            is_chat = self._chats[model] and draw.random() < 0.5
            is_stream = draw.random() < 0.8
            problem = ask(self._url, model, is_chat=is_chat, is_stream=is_stream)
            self.counts[model] += 1
            if problem:
                self.lost.append(f"{model}: {problem}")


def ask(url: str, model: str, *, is_chat: bool, is_stream: bool) -> str:
    """One request. Returns what is wrong with its answer, or nothing."""
    body: dict[str, object] = {"model": model, "max_tokens": NUM_TOKENS, "stream": is_stream}
    if is_chat:
        body["messages"] = [{"role": "user", "content": "Tell me a story."}]
    else:
        body["prompt"] = "Once upon a time"
    path = "/v1/chat/completions" if is_chat else "/v1/completions"
    try:
        data = post(url + path, body)
    except OSError as error:
        return repr(error)
    if not is_stream:
        return "" if json.loads(data)["choices"][0]["finish_reason"] else "no finish reason"
    if not data.endswith(b"data: [DONE]\n\n"):
        return f"ends in {data[-200:]!r}"
    return "" if re.search(rb'"finish_reason":"(stop|length)"', data) else "no finish reason"


def stats(url: str) -> dict[str, dict[str, float]]:
    with urllib.request.urlopen(url + "/stats", timeout=60) as reply:
        found: dict[str, dict[str, float]] = json.load(reply)["models"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.route_models",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--swaps", type=int, default=12)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--max-loaded", type=int, default=1)
    parser.add_argument("--model", type=Path, default=SMOL)
    options = parser.parse_args()
    models: dict[str, list[str]] = {
        "built-in": [],
        "gpt2-shape": [str(cached_random_model("gpt2"))],
    }
    if options.model.is_dir():
        models["third"] = [str(options.model)]
    else:
        print(f"{options.model} is not there: two models")
    config = f"max_loaded = {options.max_loaded}\nmin_loaded = 0.5\nmax_waiting = 1000\n"
    for name, argv in models.items():
        flags = [*argv, "--log-level", "warning"]
        config += f"[models.{json.dumps(name)}]\nserve = {json.dumps(flags)}\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "models.toml"
        path.write_text(config)
        argv = [sys.executable, "-m", "server", "route", "--config", str(path), "--port", "0"]
        router = subprocess.Popen(
            [*argv, "--log-level", "warning"], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert router.stdout is not None
        found = re.search(r"(http://\S+),", router.stdout.readline())
        assert found is not None, "the router did not start"
        try:
            is_lossless = run(found[1], models, options)
        finally:
            router.send_signal(signal.SIGTERM)
            router.wait(60)
    sys.exit(0 if is_lossless else 1)


def run(url: str, models: dict[str, list[str]], options: argparse.Namespace) -> bool:
    start = time.monotonic()
    chats = {name: name != "gpt2-shape" for name in models}
    clients = Clients(url, chats, options.clients)
    try:
        while sum(one["num_unloads"] for one in stats(url).values()) < options.swaps:
            time.sleep(0.5)
    finally:
        clients.stop()
    seconds = time.monotonic() - start
    found = stats(url)
    num_swaps = sum(one["num_unloads"] for one in found.values())
    print(f"{num_swaps} swaps in {seconds:.0f} s, {options.clients} clients")
    for name, one in found.items():
        print(
            f"  {name:12} {clients.counts[name]:5} requests, {one['num_answers']} answers, "
            f"{one['num_loads']} loads, the last took {one['last_load_seconds']:.1f} s"
        )
    print(f"lost: {len(clients.lost)}", *clients.lost[:5], sep="\n  ")
    return not clients.lost


if __name__ == "__main__":
    main()
