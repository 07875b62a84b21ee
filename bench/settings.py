"""BenchSettings: what the operator chose for a benchmark. ``bench.flags`` makes them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from core.contract.config import EngineConfig, ModelConfig

Schedule: TypeAlias = Literal["relative", "absolute"]


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of a run.

    Without ``text`` and ``dataset``, prompts are drawn: between ``length[0]`` and ``length[1]``
    random words each. ``shared_prefix_len`` words, the same for all requests of a run, precede
    each prompt. ``seed`` determines words, lengths and arrivals.
    """

    num_requests: int = 64
    text: str | None = None
    repeats: int = 1
    unique: bool = False
    dataset: Path | None = None
    length: tuple[int, int] = (32, 32)
    shared_prefix_len: int = 0
    max_new_tokens: int = 128
    seed: int = 0


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """When requests are submitted: ``interval`` seconds apart, or ``rate`` a second at random.

    An ``absolute`` schedule counts from the start of the run, so that a late submission delays no
    other; in a ``relative`` one each interval begins at the end of the last submission. At most
    ``concurrency`` requests are in flight; None is no limit.
    """

    interval: float = 0.0
    rate: float | None = None
    schedule: Schedule = "absolute"
    concurrency: int | None = None


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling settings. Greedy unless ``do_sample``; None stands for the server's default."""

    do_sample: bool = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    ignore_eos: bool = False
    stream_interval: int | None = None


class ServerTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A server to measure over HTTP. ``model`` None is the first one that the server lists."""

    base_url: str
    model: str | None = None
    api_key: str | None = None
    timeout: float = 900.0


class EngineTarget(msgspec.Struct, frozen=True, kw_only=True):
    """An engine to load into this process and measure.

    ``random_model``, a name in ``bench.shapes``, replaces ``model.model``. At most
    ``prefill_max_batch_size`` requests are between their submission to the engine and their
    first token; further ones wait outside the engine. With ``pretok`` all prompts are tokenized
    before the clock starts.
    """

    model: ModelConfig = ModelConfig()
    engine: EngineConfig = EngineConfig()
    random_model: str | None = None
    make_only: bool = False
    pretok: bool = False
    tokenizer_workers: int = 2
    prefill_max_batch_size: int | None = None
    profile: bool = False


Target: TypeAlias = ServerTarget | EngineTarget


class BenchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be chosen for a benchmark.

    ``sweep`` are levels of concurrency, each of which makes all runs.
    """

    target: Target = EngineTarget()
    workload: Workload = Workload()
    pace: Pace = Pace()
    sampling: Sampling = Sampling()
    chat: bool = False
    warmup_runs: int = 1
    repeat_runs: int = 1
    sweep: tuple[int, ...] = ()
    json: Path | None = None
    charts: tuple[Path, ...] = ()


def model_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the user's folder of random models, below XDG_CACHE_HOME or ``~/.cache``."""
    base = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "roseinfer" / "models"
