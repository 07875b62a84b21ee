"""RouteConfig: the models of a router and its limits, from a TOML file."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from server.client.answer import Address, parse_url
from server.settings.types import size

PORT, SOCKET = "{port}", "{socket}"
"""What a command contains in place of the port, or the Unix socket, that it is to listen on."""

_NAME = re.compile(r"[^\x00-\x20\x7f\"\\]{1,256}")


class ConfigError(Exception):
    """The file cannot be used. The text is one line."""


class RoutedModelConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model: exactly one of ``serve``, ``command`` and ``url``.

    ``serve`` are arguments of ``roseinfer serve``. ``command`` is any server; it contains PORT or
    SOCKET. ``url`` are servers that run already, equal to each other.
    """

    serve: list[str] | None = None
    command: list[str] | None = None
    url: str | list[str] | None = None
    model: str | None = None  # its name there, if it is another one
    aliases: list[str] = []
    api_key_env: str | None = None
    """Environment variable that holds the key of the servers."""
    memory: str | None = None
    """What the process needs, as ``4GiB``; counts for the memory of RouteConfig."""
    keep_alive: float | None = None
    """Seconds without a request until it is unloaded; 0: never. None: RouteConfig's."""
    preload: bool = False
    env: dict[str, str] = {}
    health: str | None = None  # path that answers 200 when the server takes requests

    @property
    def is_started(self) -> bool:
        """Whether the router starts its process."""
        return self.url is None

    @property
    def addresses(self) -> list[Address]:
        """The addresses of servers that run already. Raises ValueError."""
        urls = [self.url] if isinstance(self.url, str) else self.url or []
        return [parse_url(url) for url in urls]

    @property
    def num_memory_bytes(self) -> int:
        """``memory`` in bytes; 0 if it is not given."""
        return size(self.memory) if self.memory else 0

    @property
    def health_path(self) -> str:
        """The path that answers 200 while the server takes requests and makes progress."""
        return self.health or ("/readyz" if self.serve is not None else "/health")

    @property
    def live_path(self) -> str:
        """The path that answers 200 while the process works at all."""
        return "/livez" if self.serve is not None else self.health_path


class RouteConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file. Times are seconds."""

    models: dict[str, RoutedModelConfig]
    default: str | None = None  # the model of requests that name none
    max_loaded: int | None = None
    """Processes at once. None: as many as there are models."""
    memory: str | None = None
    """Memory of all processes together, as ``16GiB``. None: no limit."""
    keep_alive: float = 0.0
    min_loaded: float = 2.0
    """A busy model is not unloaded for another one before it was loaded so long."""
    max_waiting: int = 256  # requests that may wait for models
    wait_timeout: float = 300.0  # a request waits so long for its model
    load_timeout: float = 600.0
    stop_timeout: float = 10.0  # from SIGTERM of a process to SIGKILL
    connect_timeout: float = 5.0
    answer_timeout: float = 600.0
    """A server may be silent so long: before its answer, and in the middle of it. 0: for ever."""
    probe_after: float = 10.0
    """A server with requests that is silent so long is asked for its health. 0: it is not."""

    @property
    def num_memory_bytes(self) -> int | None:
        return size(self.memory) if self.memory else None

    def names(self) -> dict[str, str]:
        """Every name and alias, with the name of its model. Raises ConfigError."""
        found = {name: name for name in self.models}
        for name, model in self.models.items():
            for alias in model.aliases:
                if found.setdefault(alias, name) != name:
                    raise ConfigError(f"'{alias}' names two models, '{found[alias]}' and '{name}'")
        return found


def read_config(path: str, environ: Mapping[str, str]) -> RouteConfig:
    """Read a file. ``environ`` has the keys of servers. Raises ConfigError."""
    import tomllib  # noqa: PLC0415 - only this command needs it

    try:
        with Path(path).open("rb") as file:
            config = make_config(tomllib.load(file))
        _check_keys(config, environ)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (ConfigError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    return config


def make_config(data: Mapping[str, Any]) -> RouteConfig:
    """Check what a file contains. Raises ConfigError."""
    try:
        config = msgspec.convert(data, RouteConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error)) from None
    if not config.models:
        raise ConfigError("there is no model")
    names = config.names()
    for name in names:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"'{name}' is not a name")
    if config.default is not None and config.default not in names:
        raise ConfigError(f"default '{config.default}' is not one of the models")
    _check_numbers(config)
    budget = _checked(lambda: config.num_memory_bytes, "memory")
    for name, model in config.models.items():
        _check_model(name, model, budget)
    return config


def _check_keys(config: RouteConfig, environ: Mapping[str, str]) -> None:
    """Without its key, every request of a model would be answered 401 by its server."""
    for name, model in config.models.items():
        variable = model.api_key_env
        if variable is not None and not environ.get(variable, "").strip():
            what = f"the variable {variable} of api_key_env is not set, or is the router's own"
            raise ConfigError(f"model '{name}': {what}")


def _check_numbers(config: RouteConfig) -> None:
    for name, value in msgspec.structs.asdict(config).items():
        if isinstance(value, int) and value < 1:
            raise ConfigError(f"{name} must be above 0")
        if isinstance(value, float) and value < 0:
            raise ConfigError(f"{name} must not be negative")


def _check_model(name: str, model: RoutedModelConfig, budget: int | None) -> None:
    where = f"model '{name}'"
    if sum(way is not None for way in (model.serve, model.command, model.url)) != 1:
        raise ConfigError(f"{where} needs exactly one of serve, command and url")
    if model.command is not None and not any(
        place in argument for argument in model.command for place in (PORT, SOCKET)
    ):
        raise ConfigError(f"{where}: no argument of command contains {PORT} or {SOCKET}")
    if not model.is_started:
        if not _checked(lambda: model.addresses, where):
            raise ConfigError(f"{where}: url is empty")
        if model.preload or model.memory or model.keep_alive or model.env:
            raise ConfigError(f"{where}: the router does not start it, so it cannot be told how")
    if model.keep_alive is not None and model.keep_alive < 0:
        raise ConfigError(f"{where}: keep_alive must not be negative")
    needed = _checked(lambda: model.num_memory_bytes, where)
    if budget is not None and model.is_started and not needed:
        raise ConfigError(f"{where} needs memory, because there is a limit of memory")
    if budget is not None and needed > budget:
        raise ConfigError(f"{where} needs more memory than all models together may have")


def _checked(read: Any, where: str) -> Any:
    try:
        return read()
    except (ArgumentTypeError, ValueError) as error:
        raise ConfigError(f"{where}: {error}") from None
