"""run: ``roseinfer doctor``, from its settings to its exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import msgspec

from server.cli.doctor import checks
from server.cli.doctor.finding import Finding
from server.cli.doctor.flags import DoctorSettings

_STYLES = {"ok": "green", "note": "yellow", "problem": "red"}


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
    else:
        print(f"\n{verdict(problems)}")
    return 1 if problems else 0


def verdict(problems: Sequence[str]) -> str:
    """The last line of the report, of the names of what would stop a start."""
    if not problems:
        return "A server would start."
    return f"A server would not start: see {', '.join(problems)}."


def examine(settings: DoctorSettings) -> Iterator[Finding]:
    """Make the findings, the quick ones first."""
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
        yield engine.decoder(serve)


def _show(finding: Finding) -> None:
    """Print a finding: its state in colour on a terminal, its advice below."""
    if sys.stdout.isatty():
        from rich.console import Console  # noqa: PLC0415 - only for a terminal
        from rich.text import Text  # noqa: PLC0415

        state = Text(f"{finding.state:<9}", style=_STYLES[finding.state])
        Console(highlight=False).print(state + f"{finding.name:<13}{finding.text}", soft_wrap=True)
    else:
        print(f"{finding.state:<9}{finding.name:<13}{finding.text}")
    for line in (finding.advice, *finding.details):
        if line:
            print(f"{'':<22}{line}")
    sys.stdout.flush()
