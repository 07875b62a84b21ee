"""Plan: what an application of Ray Serve was given, as options of Serve and flags of a replica."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from server.settings.flags import Flag, Repeated, Switch, is_yes
from server.settings.serve import CONNECTION_FLAGS
from server.settings.settings import SERVE_GROUPS, Settings, parse_settings

BEYOND_BATCH = 8
"""Requests that a replica holds beside a full batch, so that the batch stays full."""

LONGEST_ANSWER = 600.0
"""Seconds that a replica's last answers get when it is replaced, unless the plan says so."""

RETRY_AFTER = 1  # seconds until a client that was refused should ask again

ROUTER = "ray.serve.experimental.consistent_hash_router:ConsistentHashRouter"

_SOCKETS = "Serve's proxies listen, see `serve start --help`"
_REFUSED = {
    **{flag.name: _SOCKETS for flag in CONNECTION_FLAGS if flag.name != "otlp-traces-endpoint"},
    "host": f"{_SOCKETS}; allowed_hosts names other hosts than this machine",
    "port": _SOCKETS,
    "forwarded-allow-ips": "Serve's proxies read X-Forwarded-For, see FORWARDED_ALLOW_IPS",
    "api-key": "Serve would show the key; api_key_file names a file that every machine has",
}
"""Flags that would do nothing in a replica, or harm, and why."""

_FLAGS = {
    name: flag
    for group in SERVE_GROUPS
    for flag in group.flags
    for name in (flag.name, *flag.aliases)
}


class PlanError(ValueError):
    """The arguments cannot be served. One line."""


class ReplicaOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The number of replicas, and the CPUs and GPUs that Ray reserves for each.

    With ``max_replicas``, their number follows the ongoing requests; delays are in seconds.
    """

    replicas: Annotated[int, msgspec.Meta(ge=1)] | None = None
    min_replicas: Annotated[int, msgspec.Meta(ge=0)] | None = None
    max_replicas: Annotated[int, msgspec.Meta(ge=1)] | None = None
    target_ongoing_requests: Annotated[float, msgspec.Meta(gt=0)] | None = None
    upscale_delay_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    downscale_delay_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    num_cpus: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    num_gpus: Annotated[float, msgspec.Meta(ge=0)] = 0.0

    def scaling(self, max_num_seqs: int) -> dict[str, Any]:
        """Serve's options for the number of replicas. Raises PlanError."""
        names = ("min_replicas", "target_ongoing_requests", "upscale_delay_s", "downscale_delay_s")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.max_replicas is None:
            if given:
                raise PlanError(f"{', '.join(given)}: needs max_replicas")
            return {"num_replicas": self.replicas or 1}
        if self.replicas is not None:
            raise PlanError("replicas: max_replicas is given too")
        if (self.min_replicas or 0) > self.max_replicas:
            raise PlanError("min_replicas: above max_replicas")
        config = {
            "min_replicas": 1,
            "max_replicas": self.max_replicas,
            "target_ongoing_requests": max(1, max_num_seqs // 2),
        }
        return {"autoscaling_config": config | given}


@dataclass(frozen=True, slots=True)
class Plan:
    """One application: ``argv`` of each replica, without the command, and Serve's ``options``."""

    argv: tuple[str, ...]
    options: dict[str, Any]


def plan_of(args: Mapping[str, Any]) -> Plan:
    """Make the plan of ``serve run server.ray.app:build NAME=VALUE ...``. Raises PlanError.

    Names are those of ``ReplicaOptions`` and of the flags of ``roseinfer serve``, with ``_`` or
    ``-``. The environment changes nothing: machines may have different ones.
    """
    given = {name.replace("-", "_"): value for name, value in args.items()}
    own = {name: given.pop(name) for name in ReplicaOptions.__struct_fields__ if name in given}
    try:
        replicas = msgspec.convert(own, ReplicaOptions, strict=False)
    except msgspec.ValidationError as error:
        raise PlanError(str(error)) from None
    argv = [word for name, value in given.items() for word in _words(name, value)]
    if "threads" not in given:
        argv.append(f"--threads={max(1, int(replicas.num_cpus))}")
    settings = settings_of(argv)
    grace = settings.request_timeout or LONGEST_ANSWER
    if "drain_timeout" in given:
        grace = settings.drain_timeout
    options = {
        "name": "server",
        "max_ongoing_requests": settings.engine.max_num_seqs + BEYOND_BATCH,
        "max_queued_requests": max(1, settings.max_queued_requests),
        "backpressure_config": {"status_code": 429, "retry_after_s": RETRY_AFTER},
        "request_router_config": {"request_router_class": ROUTER},
        "graceful_shutdown_timeout_s": grace,
        "graceful_shutdown_wait_loop_s": 0.5,
        "health_check_period_s": 2.0,
        "health_check_timeout_s": 30.0,
        "ray_actor_options": {"num_cpus": replicas.num_cpus, "num_gpus": replicas.num_gpus},
        **replicas.scaling(settings.engine.max_num_seqs),
    }
    return Plan(tuple(argv), options)


def settings_of(argv: list[str]) -> Settings:
    """The settings of a replica. Raises PlanError with the one line of the wrong flag."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return parse_settings(["serve", *argv], {})
    except SystemExit:
        raise PlanError(said.getvalue().strip().removeprefix("roseinfer: ")) from None


def _words(name: str, value: Any) -> Iterator[str]:
    """The words of a command line that give a flag its value."""
    flag_name = name.replace("_", "-")
    flag = _FLAGS.get(flag_name)
    if flag is None:
        raise PlanError(f"{name}: neither about replicas nor a flag of roseinfer serve")
    if flag.name in _REFUSED:
        raise PlanError(f"{name}: {_REFUSED[flag.name]}")
    match flag:
        case Switch():
            try:
                is_on = is_yes(str(value))
            except ValueError as error:
                raise PlanError(f"{name}: {error}") from None
            if is_on:
                yield f"--{flag.name}"
        case Repeated():
            values = value if isinstance(value, list) else str(value).split(",")
            yield from (f"--{flag.name}={one}" for one in values if one)
        case Flag(is_positional=True):
            yield str(value)
        case _:
            yield f"--{flag.name}={value}"
