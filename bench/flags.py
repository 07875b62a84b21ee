"""The flags of ``roseinfer bench``, and BenchSettings made of them."""

from __future__ import annotations

import functools
from argparse import ArgumentTypeError
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_args

import msgspec

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
from server.settings import types as flag_types
from server.settings.engine import ENGINE_FLAGS, MODEL_FLAGS, STREAM_INTERVAL, TOKENIZER_WORKERS
from server.settings.flags import Commands, Flag, FlagGroup, Switch, add_groups
from server.settings.types import OneOf, file, not_negative, path, positive

__all__ = ["BENCH_GROUPS", "BenchSettings", "add_bench_command"]

S = TypeVar("S", bound=msgspec.Struct)


def _levels(text: str) -> tuple[int, ...]:
    """Convert ``1,2,4`` to ascending numbers above 0."""
    levels = tuple(flag_types.positive(part) for part in text.split(","))
    if sorted(set(levels)) != list(levels):
        raise ArgumentTypeError(f"{text} does not ascend")
    return levels


def _charts(text: str) -> tuple[Path, ...]:
    """Convert the names of files, each of which ends in a form that is drawn."""
    charts = tuple(file(part) for part in text.split(","))
    for chart in charts:
        if chart.suffix not in SUFFIXES:
            raise ArgumentTypeError(f"{chart} ends neither in {' nor in '.join(SUFFIXES)}")
    return charts


_SERVER_FLAGS = (
    Flag(name="api-key", help="key that the server requires", metavar="KEY"),
    Flag(name="timeout", help="seconds that a request may take", convert=flag_types.seconds),
)
_RANDOM_MODEL_FLAGS = (
    Flag(
        name="random-model",
        help="a model of this shape with random weights, made offline at its first use and kept "
        "in the user's cache directory",
        convert=OneOf(RANDOM_MODELS),
    ),
    Switch(name="make-only", help="make the random model, print its directory and exit"),
)
_IN_PROCESS_FLAGS = (
    *MODEL_FLAGS,
    *ENGINE_FLAGS,
    Flag(
        name="prefill-max-batch-size",
        help="requests between the engine's inbox and their first token; further ones wait outside "
        "the engine, which counts as queue wait. The engine itself limits prefill by tokens: "
        "--max-num-batched-tokens",
        convert=positive,
        default_text="no limit",
    ),
    TOKENIZER_WORKERS,
    Switch(name="pretok", help="tokenize all prompts before the clock starts"),
    Switch(
        name="profile",
        help="show where the time of a step goes: by stage, and by kind of module or of the "
        "kernel's stages; slows steps down a little",
    ),
)

_TARGET = FlagGroup(
    "target",
    (
        Flag(
            name="base-url",
            help="server to measure, as http://127.0.0.1:8000/v1",
            metavar="URL",
            default_text="an engine in this process",
        ),
        Flag(
            name="model",
            help="with --base-url: model id in requests; in process: hub id or directory in "
            "Hugging Face format",
            convert=path,
            default_text="the first that the server lists; the built-in model",
        ),
        *_RANDOM_MODEL_FLAGS,
        Switch(name="chat", help="send chat completions of one user message"),
        *_SERVER_FLAGS,
    ),
    (ServerTarget, EngineTarget, BenchSettings),
)
_ENGINE = FlagGroup(
    "engine, in process only", _IN_PROCESS_FLAGS, (ModelConfig, EngineConfig, EngineTarget)
)
_PROMPTS = FlagGroup(
    "prompts",
    (
        Flag(name="num-requests", help="requests in a run", convert=positive),
        Flag(name="prompt", help="the prompt of every request", field="text"),
        Flag(
            name="prompt-repeats",
            help="times that TEXT is repeated in a prompt",
            convert=positive,
            field="repeats",
            metavar="N",
        ),
        Flag(
            name="dataset",
            help='prompts from JSON lines {"prompt": ..., "max_tokens": ...} or a ShareGPT file, '
            "from the first one on, and again from the start if there are too few",
            convert=file,
            metavar="FILE",
        ),
        Flag(
            name="prompt-len",
            help="words of a drawn prompt; in a random model each is one token",
            convert=flag_types.length_range,
            field="length",
            default_text="32",
        ),
        Flag(
            name="shared-prefix-len",
            help="drawn words before every prompt, the same for all requests of a run",
            convert=not_negative,
        ),
        Switch(
            name="unique-prompts",
            help="begin each prompt with a number of its own, so that no two share a prefix",
            field="unique",
        ),
        Flag(
            name="seed",
            help="seed of drawn words, lengths and arrivals; each run draws others",
            convert=flag_types.integer,
        ),
    ),
    (Workload,),
)
_PACE = FlagGroup(
    "submission",
    (
        Flag(
            name="submit-interval-ms",
            help="time between two submissions",
            convert=flag_types.milliseconds,
            field="interval",
            default_text="0, all at once",
        ),
        Flag(
            name="request-rate",
            help="submissions a second, at random times (Poisson)",
            convert=flag_types.positive_number,
            field="rate",
            metavar="PER_SECOND",
        ),
        Flag(
            name="submit-schedule",
            help="whether times count from the last submission or from the start of the run",
            convert=OneOf(get_args(Schedule)),
            field="schedule",
        ),
        Flag(
            name="concurrency",
            help="most requests in flight; the next is submitted when one ends",
            convert=positive,
            default_text="no limit",
        ),
        Flag(
            name="sweep",
            help="measure each of these levels of concurrency, as 1,2,4,8",
            convert=_levels,
            metavar="N,N,...",
            default_text="one level",
        ),
    ),
    (Pace, BenchSettings),
)
_SAMPLING = FlagGroup(
    "generation",
    (
        Flag(name="max-new-tokens", help="tokens to generate", convert=positive),
        Switch(
            name="no-stop-on-eos",
            help="generate all tokens, whether or not the model ends its answer; over HTTP: the "
            "field ignore_eos",
            field="ignore_eos",
        ),
        Switch(name="do-sample", help="sample tokens instead of greedy decoding"),
        Flag(
            name="temperature",
            help="sampling temperature, with --do-sample",
            convert=flag_types.not_negative_number,
            metavar="T",
        ),
        Flag(
            name="top-k",
            help="sample from the N most likely tokens, with --do-sample; 0 is off",
            convert=not_negative,
        ),
        Flag(
            name="top-p",
            help="sample from the most likely tokens of this probability, with --do-sample",
            convert=flag_types.probability,
            metavar="P",
        ),
        replace(STREAM_INTERVAL, default_text="the server's; 1 in process"),
    ),
    (Workload, Sampling),
)
_RUNS = FlagGroup(
    "runs and results",
    (
        Flag(name="warmup-runs", help="runs before those that count", convert=not_negative),
        Flag(
            name="repeat-runs",
            help="runs that count; medians are shown if there are several",
            convert=positive,
        ),
        Flag(name="json", help="write all results to FILE", convert=file, metavar="FILE"),
        Flag(
            name="chart",
            help="draw latency distributions, and throughput against latency of a sweep, as .svg "
            "or .png (which needs roseinfer[bench]); several files are joined by commas",
            convert=_charts,
            field="charts",
            metavar="FILE",
            default_text="none",
        ),
    ),
    (BenchSettings,),
)

BENCH_GROUPS = (_TARGET, _ENGINE, _PROMPTS, _PACE, _SAMPLING, _RUNS)
"""All flags of ``bench``."""

_FLAGS = tuple(flag for group in BENCH_GROUPS for flag in group.flags)
_DESTS = {flag.name: flag.dest for flag in _FLAGS}

_SERVER_ONLY = tuple(flag.name for flag in _SERVER_FLAGS)
_ENGINE_ONLY = tuple(flag.name for flag in (*_RANDOM_MODEL_FLAGS, *_IN_PROCESS_FLAGS))
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
    """Add ``roseinfer bench``; ``make_settings`` among its options makes BenchSettings of them."""
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
    model, engine = _struct(ModelConfig, given), _struct(EngineConfig, given, without="seed")
    in_process = _struct(EngineTarget, given | {"model": model, "engine": engine})
    return BenchSettings(
        target=_struct(ServerTarget, given) if "base_url" in given else in_process,
        workload=_struct(Workload, given),
        pace=_struct(Pace, given),
        sampling=_struct(Sampling, given),
        **{
            name: given[name]
            for name in ("chat", "warmup_runs", "repeat_runs", "sweep", "json", "charts")
            if name in given
        },
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


def _struct(kind: type[S], given: dict[str, Any], without: str = "") -> S:
    """Make a Struct of its fields that were given."""
    fields = kind.__struct_fields__
    return kind(**{name: given[name] for name in fields if name in given and name != without})
