r"""Share of equal greedy tokens: a GGUF file served by roseinfer and llama.cpp, and its oracle.

    python -m benchmarks.agreement FILE.gguf --llama-server PATH [--prompts 20] [--tokens 32] \
        [--llama-flags=--no-repack]

Each server continues the same prompts of 48 token ids, one after the other. The oracle is roseinfer
with the file's values in float32. For each pair: the share of tokens before the first difference,
the answers that are equal to the end, and the tokens that are equal at their place.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.post import post_json
from benchmarks.process import ServerProcess
from benchmarks.quality_text import WINDOW, windows
from core.text.tokenizer import Tokenizer

PROMPT = 48
"""Token ids of a prompt."""

START_TIMEOUT = 300.0

Answers = list[list[int]]
Ask = Callable[[str, list[int], int], list[int]]


def ask_roseinfer(url: str, prompt: list[int], num_tokens: int) -> list[int]:
    """Continue a prompt; the ids of the tokens."""
    body = {"prompt": prompt, "max_tokens": num_tokens, "temperature": 0, "ignore_eos": True}
    answer = post_json(f"{url}/v1/completions", body | {"return_token_ids": True})
    ids: list[int] = answer["choices"][0]["token_ids"]
    return ids


def ask_llama(url: str, prompt: list[int], num_tokens: int) -> list[int]:
    """Continue a prompt; the ids of the tokens."""
    body = {"prompt": prompt, "n_predict": num_tokens, "temperature": 0, "ignore_eos": True}
    answer = post_json(f"{url}/completion", body | {"return_tokens": True, "cache_prompt": False})
    ids: list[int] = answer["tokens"]
    return ids


def answers_of(command: Sequence[str], ask: Ask, prompts: list[list[int]], count: int) -> Answers:
    """Start a server and let it continue the prompts. ``command`` lacks the port."""
    with (
        tempfile.TemporaryDirectory(prefix="roseinfer-agreement-") as folder,
        ServerProcess(lambda p: [*command, "--port", str(p)], Path(folder) / "log") as server,
    ):
        server.wait_ready(START_TIMEOUT)
        return [ask(server.url, prompt, count) for prompt in prompts]


def agreement(first: Answers, second: Answers) -> tuple[float, int, float]:
    """Share of tokens before a difference, number of equal answers, share of equal tokens."""
    total = sum(len(answer) for answer in first)
    pairs = list(zip(first, second, strict=True))
    same = [[a == b for a, b in zip(one, other, strict=True)] for one, other in pairs]
    before = sum(len(list(itertools.takewhile(bool, row))) for row in same)
    return before / total, sum(map(all, same)), sum(map(sum, same)) / total


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--llama-server", type=Path)
    parser.add_argument("--llama-flags", default="", help="further flags of llama.cpp's server")
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=32)
    options = parser.parse_args()
    file, threads = str(options.file), str(len(os.sched_getaffinity(0)))
    tokenizer = Tokenizer.load(file)
    prompts = [ids[:PROMPT] for ids in windows(tokenizer, options.prompts * WINDOW)]
    serve = [sys.executable, "-m", "server", "serve", file, "--device", "cpu"]
    serve += ["--max-model-len", "1024", "--kv-cache-memory", "256MiB", "--log-level", "warning"]
    servers: dict[str, tuple[list[str], Ask]] = {
        "float32": ([*serve, "--dtype", "float32"], ask_roseinfer),
        "roseinfer": (serve, ask_roseinfer),
    }
    if options.llama_server is not None:
        llama = [str(options.llama_server), "-m", file, "-t", threads, "-c", "1024"]
        llama += ["--parallel", "1", "--no-ui", "--offline", *options.llama_flags.split()]
        servers["llama.cpp"] = (llama, ask_llama)
    found = {
        name: answers_of(command, ask, prompts, options.tokens)
        for name, (command, ask) in servers.items()
    }
    for (name, first), (other, second) in itertools.combinations(found.items(), 2):
        before, equal, share = agreement(first, second)
        print(
            f"{other} and {name}: {before:.1%} of {options.tokens * len(prompts)} tokens before a "
            f"difference, {equal} of {len(prompts)} answers equal, {share:.1%} of tokens equal"
        )


if __name__ == "__main__":
    main()
