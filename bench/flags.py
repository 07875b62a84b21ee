"""The flags of ``roseinfer bench``, and BenchSettings made of them."""

from __future__ import annotations

import functools
from argparse import ArgumentTypeError
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, get_args

from bench.drawing.write import SUFFIXES
from bench.settings import (
    BenchSettings,
    EngineTarget,
    Pace,
    Sampling,
    Schedule,
    ServerTarget,
    Workload,
)
from bench.shapes import RANDOM_MODELS
from core.contract.config import EngineConfig, ModelConfig
from server.settings.engine import ENGINE_FLAGS, MODEL_FLAGS
from server.settings.flags import Commands, Flag, FlagGroup, Switch, add_groups, flag_of, named
from server.settings.serve import SERVER_FLAGS
from server.settings.types import (
    OneOf,
    integer,
    not_negative,
    not_negative_number,
    path,
    positive,
    positive_number,
    probability,
    seconds,
    struct_of,
)

__all__ = ["BENCH_GROUPS", "BenchSettings", "add_bench_command"]


def _file(text: str) -> Path:
    return Path(path(text))


def _levels(text: str) -> tuple[int, ...]:
    """Convert ``1,2,4`` to ascending numbers above 0."""
    levels = tuple(positive(part) for part in text.split(","))
    if sorted(set(levels)) != list(levels):
        raise ArgumentTypeError(f"{text} does not ascend")
    return levels


def _charts(text: str) -> tuple[Path, ...]:
    """Convert the names of files, each of which ends in a form that is drawn."""
    charts = tuple(_file(part) for part in text.split(","))
    for chart in charts:
        if chart.suffix not in SUFFIXES:
            raise ArgumentTypeError(f"{chart} ends neither in {' nor in '.join(SUFFIXES)}")
    return charts


def _milliseconds(text: str) -> float:
    """Convert milliseconds to seconds."""
    return not_negative_number(text) / 1e3


def _length_range(text: str) -> tuple[int, int]:
    """Convert ``N`` or ``LOW-HIGH`` to the least and the greatest length, both above 0."""
    low, dash, high = text.partition("-")
    least = positive(low)
    most = positive(high) if dash else least
    if least > most:
        raise ArgumentTypeError(f"{text} is not a range")
    return least, most


_TARGET_FLAGS = named(
    base_url=Flag(
        "server to measure, as http://127.0.0.1:8000/v1",
        metavar="URL",
        unset="an engine in this process",
    ),
    model=Flag(
        "with --base-url: model id in requests; in process: hub id or directory in Hugging Face "
        "format",
        path,
        unset="the first that the server lists; the built-in model",
    ),
    random_model=Flag(
        "a model of this shape with random weights, made offline at its first use and kept in the "
        "user's cache directory",
        OneOf(RANDOM_MODELS),
    ),
    make_only=Switch("make the random model, print its directory and exit"),
    chat=Switch("send chat completions of one user message"),
    api_key=Flag("key that the server requires", metavar="KEY"),
    timeout=Flag("seconds that a request may take", seconds),
)

_IN_PROCESS_FLAGS = (
    *MODEL_FLAGS,
    *ENGINE_FLAGS,
    *named(
        prefill_max_batch_size=Flag(
            "requests between the engine's inbox and their first token; further ones wait outside "
            "the engine, which counts as queue wait. The engine itself limits prefill by tokens: "
            "--max-num-batched-tokens",
            positive,
            unset="no limit",
        ),
        tokenizer_workers=flag_of(SERVER_FLAGS, "tokenizer-workers"),
        pretok=Switch("tokenize all prompts before the clock starts"),
        profile=Switch(
            "show where the time of a step goes: by stage, and by kind of module or of the "
            "kernel's stages; slows steps down a little"
        ),
    ),
)

_PROMPTS = FlagGroup(
    "prompts",
    named(
        num_requests=Flag("requests in a run", positive),
        text=Flag("the prompt of every request", name="prompt"),
        repeats=Flag(
            "times that TEXT is repeated in a prompt", positive, name="prompt-repeats", metavar="N"
        ),
        dataset=Flag(
            'prompts from JSON lines {"prompt": ..., "max_tokens": ...} or a ShareGPT file, '
            "from the first one on, and again from the start if there are too few",
            _file,
            metavar="FILE",
        ),
        length=Flag(
            "words of a drawn prompt; in a random model each is one token",
            _length_range,
            name="prompt-len",
            metavar="N|LOW-HIGH",
            unset="32",
        ),
        shared_prefix_len=Flag(
            "drawn words before every prompt, the same for all requests of a run", not_negative
        ),
        unique=Switch(
            "begin each prompt with a number of its own, so that no two share a prefix",
            name="unique-prompts",
        ),
        seed=Flag("seed of drawn words, lengths and arrivals; each run draws others", integer),
    ),
    (Workload,),
)
_PACE = FlagGroup(
    "submission",
    named(
        interval=Flag(
            "time between two submissions",
            _milliseconds,
            name="submit-interval-ms",
            metavar="MS",
            unset="0, all at once",
        ),
        rate=Flag(
            "submissions a second, at random times (Poisson)",
            positive_number,
            name="request-rate",
            metavar="PER_SECOND",
        ),
        schedule=Flag(
            "whether times count from the last submission or from the start of the run",
            OneOf(get_args(Schedule)),
            name="submit-schedule",
        ),
        concurrency=Flag(
            "most requests in flight; the next is submitted when one ends",
            positive,
            unset="no limit",
        ),
        sweep=Flag(
            "measure each of these levels of concurrency, as 1,2,4,8",
            _levels,
            metavar="N,N,...",
            unset="one level",
        ),
    ),
    (Pace, BenchSettings),
)
_SAMPLING = FlagGroup(
    "generation",
    named(
        max_new_tokens=Flag("tokens to generate", positive),
        ignore_eos=Switch(
            "generate all tokens, whether or not the model ends its answer; over HTTP: the "
            "field ignore_eos",
            name="no-stop-on-eos",
        ),
        do_sample=Switch("sample tokens instead of greedy decoding"),
        temperature=Flag(
            "sampling temperature, with --do-sample", not_negative_number, metavar="T"
        ),
        top_k=Flag(
            "sample from the N most likely tokens, with --do-sample; 0 is off", not_negative
        ),
        top_p=Flag(
            "sample from the most likely tokens of this probability, with --do-sample",
            probability,
            metavar="P",
        ),
        stream_interval=replace(
            flag_of(SERVER_FLAGS, "stream-interval"), unset="the server's; 1 in process"
        ),
    ),
    (Workload, Sampling),
)
_RUNS = FlagGroup(
    "runs and results",
    named(
        warmup_runs=Flag("runs before those that count", not_negative),
        repeat_runs=Flag("runs that count; medians are shown if there are several", positive),
        json=Flag("write all results to FILE", _file, metavar="FILE"),
        charts=Flag(
            "draw latency distributions, and throughput against latency of a sweep, as .svg "
            "or .png (which needs roseinfer[bench]); several files are joined by commas",
            _charts,
            name="chart",
            metavar="FILE",
            unset="none",
        ),
    ),
    (BenchSettings,),
)

BENCH_GROUPS = (
    FlagGroup("target", _TARGET_FLAGS, (ServerTarget, EngineTarget, BenchSettings)),
    FlagGroup(
        "engine, in process only", _IN_PROCESS_FLAGS, (ModelConfig, EngineConfig, EngineTarget)
    ),
    _PROMPTS,
    _PACE,
    _SAMPLING,
    _RUNS,
)

_DESTS = {flag.name: flag.dest for group in BENCH_GROUPS for flag in group.flags}

_SERVER_ONLY = ("api-key", "timeout")
_ENGINE_ONLY = ("random-model", "make-only", *(flag.name for flag in _IN_PROCESS_FLAGS))
_EXCLUSIVE = (
    ("prompt", "dataset", "prompt-len"),
    ("submit-interval-ms", "request-rate"),
    ("model", "random-model"),
    ("pretok", "tokenizer-workers"),
    ("unique-prompts", "shared-prefix-len"),
    ("sweep", "concurrency"),
    ("sweep", "submit-interval-ms"),
    ("sweep", "request-rate"),
    ("sweep", "profile"),
)
"""Of each of these at most one may be given."""

_NEEDS = {
    "prompt-repeats": ("prompt",),
    "submit-schedule": ("submit-interval-ms", "request-rate"),
    "temperature": ("do-sample",),
    "top-k": ("do-sample",),
    "top-p": ("do-sample",),
    "make-only": ("random-model",),
}
"""Flags that have an effect only if one of others is given."""


def add_bench_command(commands: Commands) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure a server, or an engine in this process",
        description="Put a load on an OpenAI-compatible server (--base-url), or on an engine that "
        "is loaded into this process. It reports throughput, time to first token, time per output "
        "token, inter-token latency and latency.",
    )
    parser.set_defaults(make_settings=functools.partial(_settings, refuse=parser.error))
    add_groups(parser, BENCH_GROUPS)


def _settings(given: dict[str, Any], refuse: Callable[[str], NoReturn]) -> BenchSettings:
    """Settings of the flags that were given. Refuses those that would have no effect."""
    _check({name for name, dest in _DESTS.items() if dest in given}, refuse)
    model, engine = struct_of(ModelConfig, given), struct_of(EngineConfig, given, seed=None)
    in_process = struct_of(EngineTarget, given, model=model, engine=engine)
    return struct_of(
        BenchSettings,
        given,
        target=struct_of(ServerTarget, given) if "base_url" in given else in_process,
        workload=struct_of(Workload, given),
        pace=struct_of(Pace, given),
        sampling=struct_of(Sampling, given),
    )


def _check(given: set[str], refuse: Callable[[str], NoReturn]) -> None:
    has_server = "base-url" in given
    place = "in process" if has_server else "with --base-url"
    for name in _ENGINE_ONLY if has_server else _SERVER_ONLY:
        if name in given:
            refuse(f"--{name} has a meaning only {place}")
    for names in _EXCLUSIVE:
        both = [name for name in names if name in given]
        if len(both) > 1:
            refuse(f"--{both[0]} and --{both[1]} cannot be given together")
    for name, needed in _NEEDS.items():
        if name in given and given.isdisjoint(needed):
            refuse(f"--{name} has no meaning without --{' or --'.join(needed)}")
