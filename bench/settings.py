"""BenchSettings: what the operator chose for a benchmark, and the flags that say it."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar, get_args

import msgspec

from bench.shapes import RANDOM_MODELS
from core.contract.config import Device, DType, EngineConfig, ModelConfig, Quantization
from server.flags import Choice, Parser, integer, not_negative, positive, seconds, size

S = TypeVar("S", bound=msgspec.Struct)

SCHEDULES = ("relative", "absolute")


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked. Without ``text`` and ``dataset`` prompts are drawn, ``length`` words each.

    ``length`` is the least and the most. ``shared_prefix_len`` words, the same for all requests
    of a run, come before each prompt. ``seed`` decides about words, lengths and arrivals.
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

    ``is_absolute`` counts from the start of the run, so that a late submission delays no other;
    else each interval begins when the last submission is over. At most ``concurrency`` are in
    flight; None is no limit.
    """

    interval: float = 0.0
    rate: float | None = None
    is_absolute: bool = True
    concurrency: int | None = None


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are chosen. Greedy unless ``do_sample``; None leaves a value to the default."""

    do_sample: bool = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    ignore_eos: bool = False
    stream_interval: int | None = None


class ServerTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A server to be asked over HTTP. ``model`` None is the first one that it names."""

    base_url: str
    model: str | None = None
    api_key: str | None = None
    timeout: float = 900.0


class EngineTarget(msgspec.Struct, frozen=True, kw_only=True):
    """An engine to be loaded into this process.

    ``random_model`` is a name of ours and comes instead of ``model.model``. At most
    ``prefill_max_batch_size`` requests are between their submission to the engine and their
    first token; the others wait before it.
    """

    model: ModelConfig = ModelConfig()
    engine: EngineConfig = EngineConfig()
    random_model: str | None = None
    make_only: bool = False
    pretok: bool = False
    tokenize_workers: int = 2
    prefill_max_batch_size: int | None = None
    profile: bool = False


Target: TypeAlias = ServerTarget | EngineTarget


class BenchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be chosen for a benchmark."""

    target: Target = EngineTarget()
    workload: Workload = Workload()
    pace: Pace = Pace()
    sampling: Sampling = Sampling()
    chat: bool = False
    warmup_runs: int = 1
    repeat_runs: int = 1
    json: Path | None = None


def model_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """The user's folder for made models: below XDG_CACHE_HOME, else ``~/.cache``."""
    base = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "roseinfer" / "models"


_SERVER_ONLY = ("base_url", "api_key", "timeout")
_ENGINE_ONLY = (
    "random_model",
    "make_only",
    "device",
    "dtype",
    "quantization",
    "attention_backend",
    "max_model_len",
    "max_batch_size",
    "max_num_batched_tokens",
    "prefill_chunk_size",
    "block_size",
    "kv_cache_memory",
    "no_prefix_cache",
    "prefill_max_batch_size",
    "pretok",
    "tokenize_workers",
    "profile",
)
_EXCLUSIVE = (
    ("prompt", "dataset", "prompt_len"),
    ("submit_interval_ms", "request_rate"),
    ("model", "random_model"),
    ("pretok", "tokenize_workers"),
    ("unique_prompts", "shared_prefix_len"),
)
"""Of each of these at most one can be given."""

_NEEDS = {
    "prompt_repeats": ("prompt",),
    "submit_schedule": ("submit_interval_ms", "request_rate"),
    "temperature": ("do_sample",),
    "top_k": ("do_sample",),
    "top_p": ("do_sample",),
    "make_only": ("random_model",),
}
"""Flags that mean something only where one of others is given."""


def bench_settings(options: dict[str, Any]) -> BenchSettings:
    """Settings from the flags that were given; those that would do nothing are refused."""
    given = dict(options)
    refuse: Callable[[str], NoReturn] = given.pop("refuse")
    _check(given, refuse)
    interval_ms = given.get("submit_interval_ms", 0.0)
    return BenchSettings(
        target=_server(given) if "base_url" in given else _engine(given),
        workload=_struct(
            Workload,
            given,
            text="prompt",
            repeats="prompt_repeats",
            unique="unique_prompts",
            length="prompt_len",
        ),
        pace=Pace(
            interval=interval_ms / 1e3,
            rate=given.get("request_rate"),
            is_absolute=given.get("submit_schedule", "absolute") == "absolute",
            concurrency=given.get("concurrency"),
        ),
        sampling=_struct(Sampling, given, ignore_eos="no_stop_on_eos"),
        **{
            name: given[name]
            for name in ("chat", "warmup_runs", "repeat_runs", "json")
            if name in given
        },
    )


def _check(given: dict[str, Any], refuse: Callable[[str], NoReturn]) -> None:
    for name in _ENGINE_ONLY if "base_url" in given else _SERVER_ONLY:
        if name in given:
            where = "in process" if "base_url" in given else "with --base-url"
            refuse(f"{_flag(name)} has a meaning only {where}")
    for names in _EXCLUSIVE:
        both = [_flag(name) for name in names if name in given]
        if len(both) > 1:
            refuse(f"{both[0]} and {both[1]} cannot be given together")
    for name, needed in _NEEDS.items():
        if name in given and not any(other in given for other in needed):
            refuse(f"{_flag(name)} has no meaning without {' or '.join(map(_flag, needed))}")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _server(given: dict[str, Any]) -> ServerTarget:
    return _struct(ServerTarget, given)


def _engine(given: dict[str, Any]) -> EngineTarget:
    engine = _struct(EngineConfig, given, max_num_seqs="max_batch_size")
    if "no_prefix_cache" in given:
        engine = msgspec.structs.replace(engine, enable_prefix_caching=False)
    return _struct(EngineTarget, given | {"model": _struct(ModelConfig, given), "engine": engine})


def _struct(kind: type[S], given: dict[str, Any], **names: str) -> S:
    """A Struct of what was given; ``names`` are flags that are not called like their fields."""
    fields = {field: names.get(field, field) for field in kind.__struct_fields__}
    return kind(**{field: given[name] for field, name in fields.items() if name in given})


def add_bench_command(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add ``roseinfer bench``. Only flags that are given are among the parsed options."""
    parser = commands.add_parser(
        "bench",
        help="measure a server, or an engine in this process",
        description="Put a load on an OpenAI-compatible server (--base-url), or on an engine that "
        "is loaded into this process, and tell how fast it is.",
        argument_default=argparse.SUPPRESS,
    )
    parser.set_defaults(refuse=parser.error)
    _add_target_flags(parser.add_argument_group("what is measured"))
    _add_engine_flags(parser.add_argument_group("the engine (in process only)"))
    _add_prompt_flags(parser.add_argument_group("prompts"))
    _add_pace_flags(parser.add_argument_group("submission"))
    _add_sampling_flags(parser.add_argument_group("generation"))
    _add_run_flags(parser.add_argument_group("runs and results"))


def _add_target_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--base-url", help="server to ask, as http://127.0.0.1:8000/v1; without it: in process"
    )
    group.add_argument(
        "--model",
        help="with --base-url: model id in requests (default: the first that the server names); "
        "else: hub id or directory in Hugging Face format (default: the built-in model)",
    )
    group.add_argument(
        "--random-model",
        **_one_of(RANDOM_MODELS),
        help="a model of this shape with random weights; made offline when it is first asked for "
        "and kept in the user's cache directory",
    )
    group.add_argument(
        "--make-only",
        action="store_true",
        help="make the random model, print its directory and do nothing else",
    )
    group.add_argument("--chat", action="store_true", help="chat completions, one user message")
    group.add_argument("--api-key", help="key that the server asks for")
    group.add_argument(
        "--timeout", type=seconds, help="seconds that a request may take (default: 900)"
    )


def _add_engine_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--device", **_one_of(get_args(Device)), help="where to run")
    group.add_argument("--dtype", **_one_of(get_args(DType)), help="type of the weights")
    group.add_argument(
        "--quantization", **_one_of(get_args(Quantization)), help="what matrices are stored in"
    )
    group.add_argument("--attention-backend", help="as that of serve")
    group.add_argument("--max-model-len", type=positive, help="context length in tokens")
    group.add_argument(
        "--max-batch-size",
        type=positive,
        help="sequences decoded together; serve calls it --max-num-seqs (default: 64)",
    )
    group.add_argument(
        "--prefill-max-batch-size",
        type=positive,
        help="requests that may be between the engine's inbox and their first token; the others "
        "wait before it, which counts as queue wait (default: no limit). The engine itself limits "
        "prefilling by tokens: --max-num-batched-tokens",
    )
    group.add_argument(
        "--max-num-batched-tokens", type=positive, help="tokens computed in one step"
    )
    group.add_argument(
        "--prefill-chunk-size",
        type=positive,
        help="prompt tokens computed in a step beside streams",
    )
    group.add_argument("--block-size", type=positive, help="tokens in a block of the KV cache")
    group.add_argument("--kv-cache-memory", type=size, help="bytes for the KV cache, as 4GiB")
    group.add_argument("--no-prefix-cache", action="store_true", help="compute every prompt anew")
    group.add_argument(
        "--pretok", action="store_true", help="tokenize all prompts before the clock starts"
    )
    group.add_argument(
        "--tokenize-workers",
        type=positive,
        help="threads that tokenize prompts as they are submitted (default: 2)",
    )
    group.add_argument(
        "--profile",
        action="store_true",
        help="show where the time of a step goes, by stage and kind of module; slows steps down",
    )


def _add_prompt_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--num-requests", type=positive, help="requests in a run (default: 64)")
    group.add_argument("--prompt", metavar="TEXT", help="the prompt of every request")
    group.add_argument(
        "--prompt-repeats", type=positive, help="times that TEXT stands in a prompt (default: 1)"
    )
    group.add_argument(
        "--dataset",
        type=Path,
        metavar="FILE",
        help='prompts from JSON lines {"prompt": ..., "max_tokens": ...} or a ShareGPT file, from '
        "the first one on, and over again if there are too few",
    )
    group.add_argument(
        "--prompt-len",
        type=_length,
        metavar="N|LO-HI",
        help="words of a drawn prompt; in a random model each is one token (default: 32)",
    )
    group.add_argument(
        "--shared-prefix-len",
        type=not_negative,
        metavar="N",
        help="drawn words before every prompt, the same for all requests of a run (default: 0)",
    )
    group.add_argument(
        "--unique-prompts",
        action="store_true",
        help="begin each prompt with a number of its own, so that no two share a prefix",
    )
    group.add_argument(
        "--seed",
        type=integer,
        help="decides about drawn words, lengths and arrivals; each run draws others (default: 0)",
    )


def _add_pace_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--submit-interval-ms",
        type=_milliseconds,
        help="time between two submissions (default: 0, all at once)",
    )
    group.add_argument(
        "--request-rate",
        type=_rate,
        metavar="PER_SECOND",
        help="submissions at random times (Poisson), so many a second",
    )
    group.add_argument(
        "--submit-schedule",
        **_one_of(SCHEDULES),
        help="whether times count from the last submission or from the start of the run "
        "(default: absolute)",
    )
    group.add_argument(
        "--concurrency",
        type=positive,
        help="requests in flight at most; the next is submitted when one ends (default: no limit)",
    )


def _add_sampling_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--max-new-tokens", type=positive, help="tokens to generate (default: 128)")
    group.add_argument(
        "--no-stop-on-eos",
        action="store_true",
        help="go on to the last token whatever the model says; over HTTP: ignore_eos",
    )
    group.add_argument(
        "--do-sample", action="store_true", help="draw tokens (default: take the best)"
    )
    group.add_argument("--temperature", type=_not_negative_number, help="of --do-sample")
    group.add_argument("--top-k", type=not_negative, help="of --do-sample; 0 is off")
    group.add_argument("--top-p", type=_share, help="of --do-sample")
    group.add_argument(
        "--stream-interval",
        type=positive,
        help="tokens in a streamed piece, after the first; over HTTP: a field that roseinfer and "
        "vLLM know",
    )


def _add_run_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--warmup-runs", type=not_negative, help="runs before, which do not count (default: 1)"
    )
    group.add_argument(
        "--repeat-runs", type=positive, help="runs; of several, medians are shown (default: 1)"
    )
    group.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE, too")


def _one_of(words: tuple[str, ...]) -> dict[str, Any]:
    return {"type": Choice(words), "metavar": "{" + ",".join(words) + "}"}


def _length(text: str) -> tuple[int, int]:
    low, dash, high = text.partition("-")
    least = positive(low)
    most = positive(high) if dash else least
    if least > most:
        raise argparse.ArgumentTypeError(f"{text} is not a range")
    return least, most


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text} is not a number")
    return value


def _not_negative_number(text: str) -> float:
    value = _number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def _milliseconds(text: str) -> float:
    return _not_negative_number(text)


def _rate(text: str) -> float:
    value = _number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _share(text: str) -> float:
    value = _number(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value
