"""Settings: what the operator chose. The only reader of the command line and the environment."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, get_args

import msgspec

from core.builtin_model import MODEL_ID
from core.config import Device, DType, EngineConfig, ModelConfig
from server.parsers.reasoning import REASONING_PARSERS
from server.parsers.tool import TOOL_PARSERS

ENV_PREFIX = "ROSEINFER_"
AUTO, NONE = "auto", "none"
"""Choices of a parser: what the chat template tells, and no parser at all."""

LOG_LEVELS = ("debug", "info", "warning", "error")

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"", "0", "false", "no", "off"})


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


def parse_settings(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings of ``roseinfer ARGV``. Exits with code 2 and one line if they make no sense."""
    options = vars(build_parser(environ).parse_args(argv))
    options.pop("command")
    model = {name: options.pop(name) for name in ModelConfig.__struct_fields__}
    engine = {name: options.pop(name) for name in EngineConfig.__struct_fields__}
    name = options.pop("served_model_name") or model["model"] or MODEL_ID
    return Settings(
        model=ModelConfig(**model), engine=EngineConfig(**engine), served_model_name=name, **options
    )


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and takes no abbreviations: they would break some day."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Exit with code 2."""
        self.exit(2, f"roseinfer: {message} (try roseinfer serve --help)\n")


class _Flags:
    """Adds flags whose defaults may come from the environment."""

    def __init__(
        self,
        parser: argparse.ArgumentParser,
        environ: Mapping[str, str],
        defaults: type[msgspec.Struct],
    ) -> None:
        self._parser = parser
        self._environ = environ
        self._defaults = {
            field.encode_name: field.default for field in msgspec.structs.fields(defaults)
        }

    def add(
        self,
        group: argparse._ArgumentGroup,
        flag: str,
        description: str,
        *,
        convert: Any = str,
        dest: str | None = None,
        **more: Any,
    ) -> None:
        """Add ``--flag VALUE``."""
        dest = dest or flag.replace("-", "_")
        # argparse converts a string default just as it converts what is typed
        value = self._given(flag) or self._defaults[dest]
        shown = "" if value is None else " (default: %(default)s)"
        if isinstance(convert, _Choice):
            more["metavar"] = "{" + ",".join(convert.choices) + "}"
        group.add_argument(
            f"--{flag}", dest=dest, default=value, type=convert, help=description + shown, **more
        )

    def add_switch(
        self, group: argparse._ArgumentGroup, flag: str, dest: str, description: str
    ) -> None:
        """Add a flag without a value, which turns ``dest`` into what its default is not."""
        given = self._given(flag).lower()
        if given not in _YES | _NO:
            self._parser.error(f"{_variable(flag)}: {given!r} is neither yes nor no")
        default = bool(self._defaults[dest])
        group.add_argument(
            f"--{flag}",
            dest=dest,
            action="store_const",
            const=not default,
            default=default is not (given in _YES),
            help=description,
        )

    def add_list(
        self, group: argparse._ArgumentGroup, flag: str, dest: str, description: str
    ) -> None:
        """Add a flag that may be repeated; in the environment its values are joined by commas."""
        group.add_argument(
            f"--{flag}",
            dest=dest,
            action=_Collect,
            default=tuple(value for value in self._given(flag).split(",") if value),
            metavar="VALUE",
            help=description + " (may be repeated)",
        )

    def _given(self, flag: str) -> str:
        """What the environment says; empty is the same as nothing."""
        return self._environ.get(_variable(flag), "").strip()


class _Collect(argparse.Action):
    """Collects the values of a repeated flag, in place of its default."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        value: Any,
        _option: str | None = None,
    ) -> None:
        earlier = getattr(namespace, self.dest)
        is_first = earlier is self.default
        setattr(namespace, self.dest, (value,) if is_first else (*earlier, value))


def _variable(flag: str) -> str:
    """Name of a flag's environment variable."""
    return ENV_PREFIX + flag.replace("-", "_").upper()


def build_parser(environ: Mapping[str, str] = os.environ) -> argparse.ArgumentParser:
    """Build the parser of the whole command line."""
    parser = _Parser(
        prog="roseinfer",
        description="An OpenAI-compatible LLM inference server: strict, honest, isolating, light.",
        epilog="Every flag of serve can also be set as an environment variable: "
        "--max-num-seqs as ROSEINFER_MAX_NUM_SEQS.",
    )
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
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
    return parser


def _add_model_flags(parser: argparse.ArgumentParser, environ: Mapping[str, str]) -> None:
    flags = _Flags(parser, environ, ModelConfig)
    group = parser.add_argument_group("model")
    group.add_argument(
        "model",
        nargs="?",
        default=environ.get(_variable("model")) or None,
        help="hub id, directory in Hugging Face format, or .pt state dict "
        "(default: the built-in model)",
    )
    flags.add(group, "config", "directory or hub id of the config of a .pt state dict")
    flags.add(group, "tokenizer", "directory or hub id of the tokenizer")
    flags.add(group, "chat-template", "Jinja file, or the template itself")
    flags.add(group, "device", "where to run", convert=_Choice(get_args(Device)))
    flags.add(
        group,
        "dtype",
        "type of weights and activations; auto: the checkpoint's, or float32 where that is faster",
        convert=_Choice(get_args(DType)),
    )
    flags.add_switch(
        group, "trust-remote-code", "trust_remote_code", "run code that comes with the model"
    )


def _add_engine_flags(parser: argparse.ArgumentParser, environ: Mapping[str, str]) -> None:
    flags = _Flags(parser, environ, EngineConfig)
    group = parser.add_argument_group("engine")
    flags.add(
        group, "max-model-len", "context length in tokens (default: the model's)", convert=_positive
    )
    flags.add(group, "max-num-seqs", "sequences decoded together", convert=_positive)
    flags.add(
        group,
        "max-num-batched-tokens",
        "tokens computed in one step; longer prompts are cut in chunks "
        "(default: 512 on cpu, 8192 on cuda)",
        convert=_positive,
    )
    flags.add(
        group,
        "prefill-chunk-size",
        "tokens of prompts computed in a step beside running streams, so that these keep flowing "
        "(default: 128 on cpu, no limit on cuda)",
        convert=_positive,
    )
    flags.add(group, "block-size", "tokens in a block of the KV cache", convert=_positive)
    flags.add(
        group,
        "kv-cache-memory",
        "bytes for the KV cache, as 4GiB or 500MB (default: from free memory)",
        convert=_size,
    )
    flags.add_switch(
        group,
        "no-enable-prefix-caching",
        "enable_prefix_caching",
        "compute every prompt anew",
    )
    flags.add(
        group, "seed", "makes requests without a seed of their own repeatable", convert=_integer
    )


def _add_server_flags(parser: argparse.ArgumentParser, environ: Mapping[str, str]) -> None:
    flags = _Flags(parser, environ, Settings)
    group = parser.add_argument_group("server")
    flags.add(group, "host", "address to listen on")
    flags.add(group, "port", "port to listen on; 0 picks one and prints it", convert=_port)
    group.add_argument(
        "--served-model-name",
        default=environ.get(_variable("served-model-name")) or None,
        help="model id in requests and answers (default: as given, or " + MODEL_ID + ")",
    )
    flags.add(
        group, "stream-interval", "tokens in a streamed piece, after the first", convert=_positive
    )
    flags.add(
        group, "tokenizer-workers", "threads that render and tokenize prompts", convert=_positive
    )
    flags.add(
        group,
        "max-queued-requests",
        "requests that may wait; one more is answered 429",
        convert=_not_negative,
    )
    flags.add(
        group, "max-body-size", "bytes of a request body; more is answered 413", convert=_size
    )
    flags.add(
        group,
        "drain-timeout",
        "seconds that running requests get to finish on SIGTERM or Ctrl-C",
        convert=_seconds,
    )
    flags.add(
        group,
        "keep-alive-interval",
        "seconds of silence after which a stream sends a comment; 0: never",
        convert=_seconds,
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
        convert=_Choice((AUTO, NONE, *TOOL_PARSERS)),
    )
    flags.add(
        group,
        "reasoning-parser",
        "how the model marks its thinking; auto: as its chat template tells",
        convert=_Choice((AUTO, NONE, *REASONING_PARSERS)),
    )
    flags.add(group, "log-level", "what to log", convert=_Choice(LOG_LEVELS))


@dataclass(frozen=True)
class _Choice:
    """One of some words; unlike argparse's own, also where the word is in the environment."""

    choices: Sequence[str]

    def __call__(self, text: str) -> str:
        if text not in self.choices:
            raise argparse.ArgumentTypeError(f"{text} is not one of {', '.join(self.choices)}")
        return text


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number") from None


def _positive(text: str) -> int:
    value = _integer(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _not_negative(text: str) -> int:
    value = _integer(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def _port(text: str) -> int:
    value = _integer(text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")
    return value


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def _size(text: str) -> int:
    """Bytes from ``4GiB``, ``500MB``, ``65536``."""
    digits = text.lower().removesuffix("b").strip()
    unit = digits.lstrip("0123456789.")
    try:
        value = int(float(digits.removesuffix(unit)) * _UNITS[unit.strip()])
    except (KeyError, ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text} is not a size such as 4GiB") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value
