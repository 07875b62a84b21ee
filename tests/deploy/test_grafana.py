"""Grafana's own models read the dashboard, and lose nothing of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.docs.test_dashboard import DASHBOARD

pytestmark = pytest.mark.deploy


def lost(ours: Any, theirs: Any, place: str = "") -> Iterator[str]:
    """The places of what is in the first value and not in the second one."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key in theirs:
                yield from lost(value, theirs[key], f"{place}.{key}")
            else:
                yield f"{place}.{key}"
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from lost(mine, other, f"{place}[{index}]")
    elif ours != theirs:
        yield place


def as_grafana_reads(dashboard: dict[str, Any]) -> dict[str, Any]:
    """The dashboard as Grafana's models write it after they have read it."""
    reason = "needs grafana-foundation-sdk"
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins", reason=reason)
    from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: PLC0415
    from grafana_foundation_sdk.models.dashboard import Dashboard  # noqa: PLC0415

    plugins.register_default_plugins()
    written: dict[str, Any] = json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))
    return written


def test_grafanas_models_know_everything_in_the_dashboard():
    assert list(lost(DASHBOARD, as_grafana_reads(DASHBOARD))) == []


def test_what_they_do_not_know_is_noticed():
    wrong = json.loads(json.dumps(DASHBOARD))
    wrong["panels"][1]["gridpos"] = wrong["panels"][1].pop("gridPos")
    wrong["panels"][1]["options"]["colourMode"] = "value"
    places = list(lost(wrong, as_grafana_reads(wrong)))
    assert places == [".panels[1].options.colourMode", ".panels[1].gridpos"]
