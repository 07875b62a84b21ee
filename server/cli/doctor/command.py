"""``roseinfer doctor``: its flags, and the command."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from server.settings.flags import Commands, FlagGroup, Switch, add_groups, named
from server.settings.settings import SERVE_GROUPS, Settings, settings_of

if TYPE_CHECKING:
    from server.cli.doctor.checks import Finding

_STYLES = {"ok": "green", "note": "yellow", "problem": "red"}


class DoctorSettings(msgspec.Struct, frozen=True, kw_only=True):
    serve: Settings
    json: bool = False
    prove: bool = False


DOCTOR_GROUP = FlagGroup(
    "doctor",
    named(
        json=Switch("print the findings as JSON"),
        prove=Switch("prove the model's decoder again, whatever verdict is remembered"),
    ),
    (DoctorSettings,),
)


def add_doctor_command(commands: Commands, environ: Mapping[str, str]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="check whether a server would start here",
        description="Check Python, torch, CPU, kernels, memory, threads, CUDA, the port and, if "
        "one is named, a model, with the flags that `serve` would get. Exit code 1: something "
        "would stop the start.",
    )

    def make(options: dict[str, Any]) -> DoctorSettings:
        return DoctorSettings(
            serve=settings_of(options), json=options["json"], prove=options["prove"]
        )

    parser.set_defaults(make_settings=make)
    add_groups(parser, (DOCTOR_GROUP, *SERVE_GROUPS), environ)


def run(settings: DoctorSettings) -> int:
    """Print the findings as they are made; return 1 if there is a problem."""
    findings = []
    for finding in examine(settings):
        findings.append(finding)
        if not settings.json:
            _show(finding)
    problems = [finding.name for finding in findings if finding.state == "problem"]
    if settings.json:
        report = {"ok": not problems, "findings": findings}
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    elif problems:
        print(f"\nA server would not start: see {', '.join(problems)}.")
    else:
        print("\nA server would start.")
    return 1 if problems else 0


def examine(settings: DoctorSettings) -> Iterator[Finding]:
    """Make the findings, the quick ones first."""
    from server.cli.doctor import checks  # noqa: PLC0415 - the flags are parsed without them

    serve = settings.serve
    yield checks.python()
    packages = checks.packages()
    yield packages
    yield checks.cpu()
    yield checks.memory()
    yield checks.threads(serve.engine)
    yield checks.disk()
    yield checks.port(serve)
    yield checks.connections(serve)
    if packages.state == "problem":
        return  # what follows needs them
    from server.cli.doctor import engine  # noqa: PLC0415 - imports torch

    yield engine.cuda(serve)
    yield engine.kernels()
    model = engine.model(serve)
    yield model
    if model.state != "problem":
        yield engine.path(serve)
        yield engine.decoder(serve, repeats=settings.prove)


def _show(finding: Finding) -> None:
    from rich.console import Console  # noqa: PLC0415 - the flags are parsed without it
    from rich.text import Text  # noqa: PLC0415

    state = Text(f"{finding.state:<9}", style=_STYLES[finding.state])  # plain text in a pipe
    Console(highlight=False).print(state + f"{finding.name:<13}{finding.text}", soft_wrap=True)
    for line in (finding.advice, *finding.details):
        if line:
            print(f"{'':<22}{line}")
    sys.stdout.flush()
