"""Settings: what the operator chose. The only reader of ``serve``'s flags and environment."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec

from core.builtin_model import MODEL_ID
from core.contract.config import EngineConfig, ModelConfig
from server.settings.engine import ENGINE_FLAGS, ENGINE_SEED, MODEL_FLAGS, TASK_FLAGS
from server.settings.flags import Commands, Flag, FlagGroup, add_groups, named, new_program
from server.settings.key_file import KeyFile
from server.settings.serve import ACCESS_FLAGS, AUTO, CONNECTION_FLAGS, LOAD_FLAGS, SERVER_FLAGS
from server.settings.types import Rates, path, struct_of

_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_CACHED = re.compile(r"models--(?P<id>[^/]+)/snapshots/[^/]+/?$")
"""The directory of a hub model in the cache of huggingface_hub."""


def default_name(model: str | None) -> str:
    """The id of a model without ``--served-model-name``. It contains no path of this machine.

    It is the hub id, the last name of a directory, or the name of a file without its suffix.
    """
    if model is None:
        return MODEL_ID
    path = Path(model)
    if not model.startswith(("/", ".")) and not os.path.exists(path):  # noqa: PTH110 - no OSError
        return model
    place = os.path.abspath(path)  # noqa: PTH100 - Path.resolve follows links into the hub's cache
    cached = _CACHED.search(place)
    if cached:
        return cached["id"].replace("--", "/")
    name = os.path.basename(place)  # noqa: PTH119
    if name.endswith((".gguf", ".pt", ".pth", ".bin")):
        name = _SHARD.sub("", name.rpartition(".")[0])
    return name or MODEL_ID


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be chosen for a server. Times are seconds, sizes bytes."""

    model: ModelConfig = ModelConfig()
    engine: EngineConfig = EngineConfig()
    served_model_names: tuple[str, ...] = (MODEL_ID,)
    accept_any_model_name: bool = False
    host: str = "127.0.0.1"
    port: int = 8000
    stream_interval: int = 1
    tokenizer_workers: int = 2
    max_queued_requests: int = 512
    max_queued_prompt_tokens: int = 4 * 2**20
    max_queued_output_tokens: int = 64 * 2**20
    max_body_size: int = 32 * 2**20
    max_answer_logprobs: int = 4 * 2**20
    max_stored_responses: int = 1000
    max_stored_response_bytes: int = 64 * 2**20
    request_timeout: float = 0.0
    rate_limit: Rates | None = None
    uds: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    max_connections: int = 4096
    idle_timeout: float = 60.0
    write_timeout: float = 60.0
    otlp_traces_endpoint: str | None = None
    drain_timeout: float = 30.0
    keep_alive_interval: float = 12.0
    api_keys: tuple[str, ...] = ()
    api_key_file: KeyFile | None = None
    share_prefix_cache: bool = False
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    forwarded_allow_ips: str | None = None
    clamp_max_tokens: bool = False
    trust_request_chat_template: bool = False
    strict_fields: bool = False
    strict_schemas: bool = False
    keep_billing_header: bool = False
    tool_call_parser: str = AUTO
    reasoning_parser: str = AUTO
    log_level: str = "info"
    log_format: str = "text"
    request_log: int = 1000
    log_prompts: bool = False
    ui: bool = True

    @property
    def model_name(self) -> str:
        """The model id in answers."""
        return self.served_model_names[0]


_MODEL = named(
    model=Flag(
        "hub id, directory in Hugging Face format, .gguf file, or .pt state dict",
        path,
        is_positional=True,
        unset="the built-in model",
    )
)
SERVE_GROUPS = (
    FlagGroup("model", (*_MODEL, *MODEL_FLAGS, *TASK_FLAGS), (ModelConfig,)),
    FlagGroup("engine", (*ENGINE_FLAGS, *ENGINE_SEED), (EngineConfig,)),
    FlagGroup("server", SERVER_FLAGS, (Settings,)),
    FlagGroup("load", LOAD_FLAGS, (Settings,)),
    FlagGroup("access", ACCESS_FLAGS, (Settings,)),
    FlagGroup("connections", CONNECTION_FLAGS, (Settings,)),
)


def add_serve_command(commands: Commands, environ: Mapping[str, str]) -> None:
    parser = commands.add_parser(
        "serve",
        help="serve a model over HTTP",
        description="Serve a model at /v1/chat/completions and /v1/completions.",
        epilog="Every flag can also be set as an environment variable: "
        "--max-num-seqs as ROSEINFER_MAX_NUM_SEQS.",
    )
    parser.set_defaults(make_settings=settings_of)
    add_groups(parser, SERVE_GROUPS, environ)


def parse_settings(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings of ``roseinfer serve ...``. Exits with code 2 and one line on a wrong flag."""
    program, commands = new_program()
    add_serve_command(commands, environ)
    return settings_of(vars(program.parse_args(argv)))


def settings_of(options: dict[str, Any]) -> Settings:
    """Settings of the parsed options of all SERVE_GROUPS."""
    model, engine = struct_of(ModelConfig, options), struct_of(EngineConfig, options)
    names = options["served_model_names"] or (default_name(model.model),)
    return struct_of(Settings, options, model=model, engine=engine, served_model_names=names)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``. Resolves a name; an empty one is every one."""
    if not host:
        return False
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ip_address(str(address)).is_loopback for address in found)
