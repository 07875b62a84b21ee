"""The next loads and unloads of a router: a function of its models, without I/O and clock."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum


class ModelState(Enum):
    """The state of a model's process. Only READY ones get requests."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    """It has requests and gets no more. When they have ended, it is unloaded for another model."""
    STOPPING = "stopping"


@dataclass(slots=True, eq=False)
class ModelSlot:
    """A model whose process the router starts. Times are seconds; ``memory`` is bytes."""

    name: str
    memory: int = 0
    keep_alive: float = math.inf  # seconds without a request after which it is unloaded
    state: ModelState = ModelState.UNLOADED
    num_inside: int = 0  # requests that the process has
    num_waiting: int = 0
    wanted_since: float | None = None
    """Since when it should be loaded. None: nobody wants it."""
    last_used: float = 0.0
    ready_since: float = 0.0
    retry_at: float = 0.0  # it has failed to load and is not tried again before
    displaced: list[ModelSlot] = field(default_factory=list)
    """What was unloaded for it, until it is ready."""

    @property
    def is_held(self) -> bool:
        """Whether it has a process."""
        return self.state is not ModelState.UNLOADED


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """The limits of what is loaded at once. ``min_loaded``: see RouteConfig."""

    max_loaded: float = math.inf
    memory: float = math.inf
    min_loaded: float = 0.0

    def fits(self, slots: Iterable[ModelSlot]) -> bool:
        """Whether these may be loaded at once."""
        slots = list(slots)
        return len(slots) <= self.max_loaded and sum(s.memory for s in slots) <= self.memory


Plan = list[tuple[ModelState, ModelSlot]]  # which state each of these slots is to get


def plan(slots: Sequence[ModelSlot], room: MemoryBudget, now: float) -> Plan:
    """The changes of state due now. The caller makes them, and asks again on any event.

    Models are loaded in the order in which they were wanted; none overtakes one that waits for
    room. Idle models make room first, then the one that was used longest ago.
    """
    actions: Plan = []
    leaving: list[ModelSlot] = []
    held = [slot for slot in slots if slot.is_held]
    for slot in _wanted(slots, now):
        if room.fits([*held, slot]):
            actions.append((ModelState.LOADING, slot))
            held.append(slot)
        elif not slot.num_waiting:
            slot.wanted_since = None  # nobody waits for it: it displaces nothing
        else:
            leaving = _making_room(slot, held, room, now)
            going = [other for other in leaving if not other.num_inside]
            slot.displaced += [other for other in going if other not in slot.displaced]
            break
    for slot in slots:
        if slot.state is ModelState.DRAINING and slot not in leaving:
            actions.append((ModelState.READY, slot))  # it is not in the way any more
        elif slot in leaving and slot.state in {ModelState.READY, ModelState.DRAINING}:
            if not slot.num_inside:
                actions.append((ModelState.STOPPING, slot))
            elif slot.state is ModelState.READY:
                actions.append((ModelState.DRAINING, slot))
        elif _is_idle(slot) and now >= slot.last_used + slot.keep_alive:
            actions.append((ModelState.STOPPING, slot))
    return actions


def next_due(slots: Sequence[ModelSlot], room: MemoryBudget, now: float) -> float | None:
    """When time alone may change the plan. None: never."""
    times = [slot.last_used + slot.keep_alive for slot in slots if _is_idle(slot)]
    if any(slot.wanted_since is not None and not slot.is_held for slot in slots):
        times += [
            slot.ready_since + room.min_loaded
            for slot in slots
            if slot.state in {ModelState.READY, ModelState.DRAINING}
        ]
        times += [slot.retry_at for slot in slots if slot.wanted_since is not None]
    times = [time for time in times if now < time < math.inf]
    return min(times, default=None)


def _wanted(slots: Sequence[ModelSlot], now: float) -> list[ModelSlot]:
    """Models that should be loaded, the one that waits longest first."""
    wanted = [
        slot
        for slot in slots
        if slot.wanted_since is not None and not slot.is_held and slot.retry_at <= now
    ]
    return sorted(wanted, key=lambda slot: slot.wanted_since or 0.0)


def _making_room(
    target: ModelSlot, held: Sequence[ModelSlot], room: MemoryBudget, now: float
) -> list[ModelSlot]:
    """The models that have to go for ``target``; none if it has to wait all the same."""
    staying = [slot for slot in held if slot.state is not ModelState.STOPPING]
    able = [
        slot
        for slot in staying
        if slot.state is ModelState.DRAINING
        or (slot.state is ModelState.READY and _may_go(slot, room, now))
    ]
    able.sort(
        key=lambda slot: (slot.num_inside > 0, slot.state is ModelState.READY, slot.last_used)
    )
    leaving: list[ModelSlot] = []
    for slot in able:
        if room.fits([*staying, target]):
            break
        staying.remove(slot)
        leaving.append(slot)
    return leaving if room.fits([*staying, target]) else []


def _may_go(slot: ModelSlot, room: MemoryBudget, now: float) -> bool:
    return not slot.num_inside or now >= slot.ready_since + room.min_loaded


def _is_idle(slot: ModelSlot) -> bool:
    return slot.state is ModelState.READY and not slot.num_inside and not slot.num_waiting
