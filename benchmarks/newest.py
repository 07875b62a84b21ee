"""newest: of a file with runs of several commits of ours, those of the last one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from benchmarks.lines import Line
from benchmarks.results import US


def commit_of(session: Line, contender: str) -> str:
    """Return the commit of ours that a session ran; "unknown" if it does not say."""
    found = re.search(r"commit ([^\s,]+)", session["contenders"].get(contender, ""))
    return found[1] if found else "unknown"


def newest(runs: Sequence[Line], sessions: Mapping[str, Line]) -> list[Line]:
    """Runs of one group, without those of ours with a commit that was not the scenario's last.

    Of another server, only those beside ours, if there are any: memory differs between sessions.
    A run with errors makes no commit the last one.
    """
    last: dict[tuple[str, str], str] = {}  # by our server and the scenario
    for run in sorted(runs, key=_session):
        if _is_ours(run) and not run["num_errors"]:
            last[_load(run)] = _commit(run, sessions)
    ours = [run for run in runs if last.get(_load(run)) == _commit(run, sessions)]
    beside = {_place(run) for run in ours}
    others = [run for run in runs if not _is_ours(run)]
    met = {_load(run) for run in others if _place(run) in beside}
    kept = [run for run in others if _place(run) in beside or _load(run) not in met]
    return [*ours, *kept]


def _is_ours(run: Line) -> bool:
    return bool(run["contender"].startswith(US))


def _session(run: Line) -> str:
    return str(run["session"])


def _load(run: Line) -> tuple[str, str]:
    return run["contender"], run["scenario"]


def _place(run: Line) -> tuple[str, str]:
    return run["session"], run["scenario"]


def _commit(run: Line, sessions: Mapping[str, Line]) -> str:
    return commit_of(sessions[run["session"]], run["contender"])
