"""Nobody beside an attack notices it: the quick half, one server for all of it."""

from __future__ import annotations

import pytest

from tests.bystander import attacks
from tests.bystander.arena import ATTACKS, Attack
from tests.bystander.attacks.route import QUICK_THROUGH
from tests.bystander.cuts import cut_many
from tests.bystander.stand import Stand
from tests.bystander.storms import drawn, storm

pytestmark = pytest.mark.slow

assert attacks.__all__, "importing the package registers the attacks"

QUICK = [one for one in ATTACKS.values() if one.is_quick and one.kind == "text"]
POOLING = [one for one in ATTACKS.values() if one.is_quick and one.kind == "embed"]
ROUTED = [one for one in ATTACKS.values() if one.is_quick and one.kind == "route"]
ROUTED += [ATTACKS[name] for name in QUICK_THROUGH]


@pytest.mark.parametrize("attack", QUICK, ids=lambda attack: attack.name)
def test_attack(quick_stand: Stand, attack: Attack) -> None:
    outcome = quick_stand.run(attack, calm_seconds=1.2, num_tries=3)
    assert not outcome.broken, str(outcome)


@pytest.mark.parametrize("attack", POOLING, ids=lambda attack: attack.name)
def test_attack_on_vectors(wake, attack: Attack) -> None:
    outcome = wake("embed").run(attack, calm_seconds=1.2, num_tries=3)
    assert not outcome.broken, str(outcome)


@pytest.mark.parametrize("attack", ROUTED, ids=lambda attack: attack.name)
def test_attack_through_a_router(wake, attack: Attack) -> None:
    outcome = wake("route").run(attack, calm_seconds=1.2, num_tries=3)
    assert not outcome.broken, str(outcome)


def test_a_hundred_streams_cut_at_random_phases(quick_stand: Stand) -> None:
    slack = 4 * quick_stand.slack()
    with quick_stand.quiet():
        cut_many(quick_stand, 100, slack=slack)


def test_some_broken_requests(quick_stand: Stand) -> None:
    arena = storm(quick_stand, 500, seed=1)
    assert arena.statuses[200], "some are whole by chance, and a busy machine answers few in time"
    assert arena.statuses[400] > 50


def test_some_drawn_requests(quick_stand: Stand) -> None:
    drawn(quick_stand, 60)
