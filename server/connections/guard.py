"""Guard: what all connections of a server share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from server.connections.busy import turn_away_busy
from server.connections.door import Door
from server.connections.heads import Heads
from server.connections.limits import ConnectionLimits
from server.connections.turn_away import IsFull, TurnAway


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Limits, and who decides about a request in front of the application.

    ``heads`` says when a request that begins is parsed. ``turn_away`` may answer from the head
    alone, which costs less than an answer of the application; ``turn_away_busy`` does it while too
    many connections have requests.
    """

    limits: ConnectionLimits
    heads: Heads
    turn_away: TurnAway
    turn_away_busy: TurnAway

    @classmethod
    def of(cls, limits: ConnectionLimits, turn_away: TurnAway) -> Self:
        """The guard of one server. Its event loop is running."""
        return cls(limits=limits, heads=Heads(), turn_away=turn_away, turn_away_busy=turn_away_busy)

    def door(self, is_full: IsFull) -> Door:
        """The door in front of the same connections."""
        return Door(self.turn_away, self.limits, is_full)
