"""What the requests of a run ask."""

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


class Asked(NamedTuple):
    """One request's prompt, and how many tokens it wants."""

    prompt: str
    max_tokens: int


def requests_of(workload: Workload, run: str) -> list[Asked]:
    """The requests of the run of this name; another run's drawn or unique prompts are others.

    So no prefix cache answers for an earlier run. Raises BenchError for a dataset that is none.
    """
    rng = random.Random(f"{workload.seed}/{run}")
    prefix = random_prompt(rng, workload.shared_prefix_len)
    if workload.dataset is not None:
        entries = islice(cycle(read_dataset(workload.dataset)), workload.num_requests)
        asked = [Asked(prompt, wanted or workload.max_new_tokens) for prompt, wanted in entries]
    elif workload.text is not None:
        text = workload.text * workload.repeats
        asked = [Asked(text, workload.max_new_tokens)] * workload.num_requests
    else:
        asked = [
            Asked(random_prompt(rng, rng.randint(*workload.length)), workload.max_new_tokens)
            for _ in range(workload.num_requests)
        ]
    if workload.unique:
        return [
            Asked(f"{rng.getrandbits(32)} {prompt}", max_tokens) for prompt, max_tokens in asked
        ]
    return [Asked(prefix + prompt, max_tokens) for prompt, max_tokens in asked]


class _Turn(msgspec.Struct):
    value: str
    speaker: str = msgspec.field(name="from")


class _Entry(msgspec.Struct):
    """A line of ours, or an entry of ShareGPT's."""

    prompt: str | None = None
    max_tokens: int | None = None
    conversations: list[_Turn] | None = None

    @property
    def asked(self) -> str | None:
        """The prompt: of a conversation, what a human said first."""
        if self.prompt is not None:
            return self.prompt
        turns = self.conversations or ()
        return next((turn.value for turn in turns if turn.speaker in _HUMANS), None)


def read_dataset(file: Path) -> list[tuple[str, int | None]]:
    """Prompts, and how many tokens each wants if it says so. Raises BenchError."""
    try:
        data = file.read_bytes()
        if data.lstrip()[:1] == b"[":
            entries = msgspec.json.decode(data, type=list[_Entry])
        else:
            entries = [
                msgspec.json.decode(line, type=_Entry) for line in data.splitlines() if line.strip()
            ]
    except (OSError, msgspec.MsgspecError) as error:
        raise BenchError(f"the dataset {file} cannot be read: {error}") from error
    found = [(entry.asked, entry.max_tokens) for entry in entries]
    asked = [(prompt, max_tokens) for prompt, max_tokens in found if prompt]
    if not asked:
        raise BenchError(f"the dataset {file} holds no prompts")
    return asked
