"""The requests of a run: prompts and token limits."""

from __future__ import annotations

import random
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.errors import BenchError
from bench.settings import Workload
from bench.words import random_prompt

_HUMANS = frozenset({"human", "user"})


class Request(NamedTuple):
    """One request's prompt and its limit of generated tokens."""

    prompt: str
    max_tokens: int


def requests_of(workload: Workload, run: str) -> list[Request]:
    """Return the requests of the run of this name.

    Each run draws other prompts, so that the prefix cache holds none of an earlier run's. Raises
    BenchError if the dataset cannot be read.
    """
    rng = random.Random(f"{workload.seed}/{run}")
    prefix = random_prompt(rng, workload.shared_prefix_len)
    if workload.dataset is not None:
        entries = islice(cycle(read_dataset(workload.dataset)), workload.num_requests)
        requests = [Request(prompt, limit or workload.max_new_tokens) for prompt, limit in entries]
    elif workload.text is not None:
        text = workload.text * workload.repeats
        requests = [Request(text, workload.max_new_tokens)] * workload.num_requests
    else:
        requests = [
            Request(random_prompt(rng, rng.randint(*workload.length)), workload.max_new_tokens)
            for _ in range(workload.num_requests)
        ]
    if workload.unique:
        return [
            Request(f"{rng.getrandbits(32)} {prompt}", max_tokens)
            for prompt, max_tokens in requests
        ]
    return [Request(prefix + prompt, max_tokens) for prompt, max_tokens in requests]


class _Turn(msgspec.Struct):
    value: str
    speaker: str = msgspec.field(name="from")


class _Entry(msgspec.Struct):
    """One JSON line, or one entry of a ShareGPT file."""

    prompt: str | None = None
    max_tokens: int | None = None
    conversations: list[_Turn] | None = None

    @property
    def first_prompt(self) -> str | None:
        """The prompt, or the first human turn of a conversation."""
        if self.prompt is not None:
            return self.prompt
        turns = self.conversations or ()
        return next((turn.value for turn in turns if turn.speaker in _HUMANS), None)


def read_dataset(file: Path) -> list[tuple[str, int | None]]:
    """Return prompts, each with its limit of generated tokens if it has one. Raises BenchError."""
    try:
        data = file.read_bytes()
        if data.lstrip()[:1] == b"[":
            entries = msgspec.json.decode(data, type=list[_Entry])
        else:
            entries = [
                msgspec.json.decode(line, type=_Entry) for line in data.splitlines() if line.strip()
            ]
    except (OSError, msgspec.MsgspecError) as error:
        raise BenchError(f"cannot read the dataset {file}: {error}") from error
    found = [(entry.first_prompt, entry.max_tokens) for entry in entries]
    prompts = [(prompt, max_tokens) for prompt, max_tokens in found if prompt]
    if not prompts:
        raise BenchError(f"the dataset {file} contains no prompts")
    return prompts
