"""Settings: what the operator chose. The only reader of the command line and the environment."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import get_args

import msgspec

from bench.settings import BenchSettings, add_bench_command, bench_settings
from core.builtin_model import MODEL_ID
from core.contract.config import (
    Device,
    DType,
    EngineConfig,
    KVCacheDType,
    ModelConfig,
    Quantization,
)
from server.flags import (
    Choice,
    Flags,
    Parser,
    integer,
    not_negative,
    port,
    positive,
    seconds,
    share,
    size,
    variable,
)
from server.parsers.reasoning import REASONING_PARSERS
from server.parsers.tool import TOOL_PARSERS

AUTO, NONE = "auto", "none"
"""Choices of a parser: what the chat template tells, and no parser at all."""

LOG_LEVELS = ("debug", "info", "warning", "error")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be chosen for a server. Times are seconds, sizes bytes."""

    model: ModelConfig = ModelConfig()
    engine: EngineConfig = EngineConfig()
    served_model_name: str = MODEL_ID
    host: str = "127.0.0.1"
    port: int = 8000
    stream_interval: int = 1
    tokenizer_workers: int = 2
    max_queued_requests: int = 512
    max_body_size: int = 32 * 2**20
    drain_timeout: float = 30.0
    keep_alive_interval: float = 12.0
    api_keys: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    trust_request_chat_template: bool = False
    tool_call_parser: str = AUTO
    reasoning_parser: str = AUTO
    log_level: str = "info"


def parse_command(
    argv: Sequence[str], environ: Mapping[str, str] = os.environ
) -> Settings | BenchSettings:
    """What ``roseinfer ARGV`` is to do. Exits with code 2 and one line if it makes no sense."""
    options = vars(build_parser(environ).parse_args(argv))
    if options.pop("command") == "bench":
        return bench_settings(options)
    model = {name: options.pop(name) for name in ModelConfig.__struct_fields__}
    engine = {name: options.pop(name) for name in EngineConfig.__struct_fields__}
    name = options.pop("served_model_name") or model["model"] or MODEL_ID
    return Settings(
        model=ModelConfig(**model), engine=EngineConfig(**engine), served_model_name=name, **options
    )


def parse_settings(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings of ``roseinfer serve ...``; exits as ``parse_command`` does."""
    settings = parse_command(argv, environ)
    assert isinstance(settings, Settings), "this is for the serve command"
    return settings


def build_parser(environ: Mapping[str, str] = os.environ) -> argparse.ArgumentParser:
    """Build the parser of the whole command line."""
    parser = Parser(
        prog="roseinfer",
        description="An OpenAI-compatible LLM inference server: strict, honest, isolating, light.",
        epilog="Every flag of serve can also be set as an environment variable: "
        "--max-num-seqs as ROSEINFER_MAX_NUM_SEQS.",
    )
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    serve = commands.add_parser(
        "serve",
        help="serve a model over HTTP",
        description="Serve a model at /v1/chat/completions and /v1/completions.",
        epilog="Every flag can also be set as an environment variable: "
        "--max-num-seqs as ROSEINFER_MAX_NUM_SEQS.",
    )
    _add_model_flags(serve, environ)
    _add_engine_flags(serve, environ)
    _add_server_flags(serve, environ)
    add_bench_command(commands)
    return parser


def _add_model_flags(parser: argparse.ArgumentParser, environ: Mapping[str, str]) -> None:
    flags = Flags(parser, environ, ModelConfig)
    group = parser.add_argument_group("model")
    group.add_argument(
        "model",
        nargs="?",
        default=environ.get(variable("model")) or None,
        help="hub id, directory in Hugging Face format, or .pt state dict "
        "(default: the built-in model)",
    )
    flags.add(group, "config", "directory or hub id of the config of a .pt state dict")
    flags.add(group, "tokenizer", "directory or hub id of the tokenizer")
    flags.add(group, "chat-template", "Jinja file, or the template itself")
    flags.add(group, "device", "where to run", convert=Choice(get_args(Device)))
    flags.add(
        group,
        "dtype",
        "type of weights and activations; auto: the checkpoint's, or float32 where that is faster",
        convert=Choice(get_args(DType)),
    )
    flags.add(
        group,
        "quantization",
        "what matrices are stored in, if not in that type: int8, or on a GPU fp8, one scale a row",
        convert=Choice(get_args(Quantization)),
    )
    flags.add_switch(
        group, "trust-remote-code", "trust_remote_code", "run code that comes with the model"
    )


def _add_engine_flags(parser: argparse.ArgumentParser, environ: Mapping[str, str]) -> None:
    flags = Flags(parser, environ, EngineConfig)
    group = parser.add_argument_group("engine")
    flags.add(
        group, "max-model-len", "context length in tokens (default: the model's)", convert=positive
    )
    flags.add(group, "max-num-seqs", "sequences decoded together", convert=positive)
    flags.add(
        group,
        "max-num-batched-tokens",
        "tokens computed in one step; longer prompts are cut in chunks "
        "(default: 512 on cpu, 8192 on cuda)",
        convert=positive,
    )
    flags.add(
        group,
        "prefill-chunk-size",
        "tokens of prompts computed in a step beside running streams, so that these keep flowing "
        "(default: 128 on cpu, no limit on cuda)",
        convert=positive,
    )
    flags.add(group, "block-size", "tokens in a block of the KV cache", convert=positive)
    flags.add(
        group,
        "kv-cache-memory",
        "bytes for the KV cache, as 4GiB or 500MB (default: from free memory)",
        convert=size,
    )
    flags.add(
        group,
        "kv-cache-dtype",
        "type of the KV cache; auto: the model's; fp8 needs CUDA and the triton backend",
        convert=Choice(get_args(KVCacheDType)),
    )
    flags.add(
        group,
        "gpu-memory-utilization",
        "part of a GPU's memory that weights, KV cache and steps may take together",
        convert=share,
    )
    flags.add_switch(
        group, "enforce-eager", "enforce_eager", "do not run decode steps as CUDA graphs"
    )
    flags.add_switch(
        group,
        "no-async-scheduling",
        "async_scheduling",
        "on CUDA, read a step's tokens back before the next step is launched",
    )
    flags.add_switch(
        group,
        "no-enable-prefix-caching",
        "enable_prefix_caching",
        "compute every prompt anew",
    )
    flags.add(group, "attention-backend", "auto (the default for the device), cpu, torch or triton")
    flags.add(
        group, "seed", "makes requests without a seed of their own repeatable", convert=integer
    )


def _add_server_flags(parser: argparse.ArgumentParser, environ: Mapping[str, str]) -> None:
    flags = Flags(parser, environ, Settings)
    group = parser.add_argument_group("server")
    flags.add(group, "host", "address to listen on")
    flags.add(group, "port", "port to listen on; 0 picks one and prints it", convert=port)
    group.add_argument(
        "--served-model-name",
        default=environ.get(variable("served-model-name")) or None,
        help="model id in requests and answers (default: as given, or " + MODEL_ID + ")",
    )
    flags.add(
        group, "stream-interval", "tokens in a streamed piece, after the first", convert=positive
    )
    flags.add(
        group, "tokenizer-workers", "threads that render and tokenize prompts", convert=positive
    )
    flags.add(
        group,
        "max-queued-requests",
        "requests that may wait; one more is answered 429",
        convert=not_negative,
    )
    flags.add(group, "max-body-size", "bytes of a request body; more is answered 413", convert=size)
    flags.add(
        group,
        "drain-timeout",
        "seconds that running requests get to finish on SIGTERM or Ctrl-C",
        convert=seconds,
    )
    flags.add(
        group,
        "keep-alive-interval",
        "seconds of silence after which a stream sends a comment; 0: never",
        convert=seconds,
    )
    flags.add_list(group, "api-key", "api_keys", "ask clients for this key")
    flags.add_list(
        group, "allowed-origins", "allowed_origins", "let pages of this origin call; * is any"
    )
    flags.add_switch(
        group,
        "trust-request-chat-template",
        "trust_request_chat_template",
        "let requests bring their own chat template",
    )
    flags.add(
        group,
        "tool-call-parser",
        "how the model writes tool calls; auto: as its chat template tells",
        convert=Choice((AUTO, NONE, *TOOL_PARSERS)),
    )
    flags.add(
        group,
        "reasoning-parser",
        "how the model marks its thinking; auto: as its chat template tells",
        convert=Choice((AUTO, NONE, *REASONING_PARSERS)),
    )
    flags.add(group, "log-level", "what to log", convert=Choice(LOG_LEVELS))
