"""Rates: how much each tenant gets in a minute."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rates:
    """Most requests and tokens in a minute; 0: no limit."""

    requests: int = 0
    tokens: int = 0
