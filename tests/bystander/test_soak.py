"""Everything in full: attacks, cuts, fuzzing, signals, and minutes of mixed load."""

from __future__ import annotations

import pytest

from tests.bystander import attacks
from tests.bystander.arena import ATTACKS, Attack
from tests.bystander.attacks.route import THROUGH
from tests.bystander.cuts import PHASES, cut_many
from tests.bystander.footprint import MIB
from tests.bystander.mixed import mixed_load
from tests.bystander.signals import STATES, check_stop
from tests.bystander.stand import BACK_SECONDS, KEPT_BYTES, Stand
from tests.bystander.storms import drawn, storm
from tests.bystander.table import Table

pytestmark = pytest.mark.soak

assert attacks.__all__, "importing the package registers the attacks"

SHARED = [one for one in ATTACKS.values() if not one.has_own_server and one.kind == "text"]
POOLING = [one for one in ATTACKS.values() if one.kind in {"embed", "score"}]
ROUTED = [one for one in ATTACKS.values() if one.kind == "route"]
ROUTED += [ATTACKS[name] for name in THROUGH]
OWN = [one for one in ATTACKS.values() if one.has_own_server]


@pytest.mark.parametrize("attack", SHARED, ids=lambda attack: attack.name)
def test_attack(stand: Stand, attack: Attack, table: Table) -> None:
    outcome = stand.run(attack, calm_seconds=3)
    table.add("Attacks", outcome.row())
    assert not outcome.broken, str(outcome)


@pytest.mark.parametrize("attack", POOLING, ids=lambda attack: attack.name)
def test_attack_on_vectors_and_scores(
    stand: Stand, pooling_stands: dict[str, Stand], attack: Attack, table: Table
) -> None:
    attacked = pooling_stands[attack.kind]
    with stand.quiet(), attacked.awake():
        outcome = attacked.run(attack, calm_seconds=3)
    table.add("Attacks on vectors and scores", outcome.row())
    assert not outcome.broken, str(outcome)


@pytest.mark.parametrize("attack", ROUTED, ids=lambda attack: attack.name)
def test_attack_through_a_router(
    stand: Stand, routed_stand: Stand, attack: Attack, table: Table
) -> None:
    with stand.quiet(), routed_stand.awake():
        outcome = routed_stand.run(attack, calm_seconds=3)
    table.add("Attacks through a router", outcome.row())
    assert not outcome.broken, str(outcome)


@pytest.mark.parametrize("attack", OWN, ids=lambda attack: attack.name)
def test_attack_on_a_server_of_its_own(
    stand: Stand, start_server, attack: Attack, table: Table
) -> None:
    with stand.quiet():
        server = start_server(*attack.flags, **attack.server_options).wait_ready()
        attacked = Stand(server, size=1, num_tokens=900)
        try:
            outcome = attacked.run(attack, calm_seconds=3)
        finally:
            attacked.close()
            server.stop()
    table.add("Attacks", outcome.row())
    assert not outcome.broken, str(outcome)


def test_a_thousand_streams_cut_at_random_phases(stand: Stand, table: Table) -> None:
    with stand.quiet():
        phases, slowest = cut_many(stand, 1000, slack=1)
    title = "Streams cut at random phases"
    for phase in PHASES:
        table.add(title, {"phase": phase, "streams": str(phases[phase])})
    row = {"phase": "all", "streams": "1000", "slowest return": f"{slowest * 1000:.0f} ms"}
    table.add(title, row)


def test_a_hundred_thousand_broken_requests(stand: Stand, table: Table) -> None:
    storm(stand, 5_000, seed=1)  # the first of each kind start threads and processes that stay
    with stand.quiet():
        before = stand.footprint().memory
    arena = storm(stand, 100_000, seed=2)
    with stand.quiet():
        left = stand.wait_back(BACK_SECONDS * stand.slack())
        kept = stand.wait_kept(before, BACK_SECONDS)
    answers = ", ".join(f"{n} x {s or 'none'}" for s, n in sorted(arena.statuses.items()))
    row = {"inputs": str(arena.num_sent), "answers": answers, "kept": f"{kept / MIB:.0f} MiB"}
    table.add("Byte fuzzer", row)
    assert not left, left
    assert kept < KEPT_BYTES, f"{kept / MIB:.0f} MiB kept"


def test_ten_thousand_drawn_requests(stand: Stand, table: Table) -> None:
    drawn(stand, 10_000)
    table.add("Requests drawn by Hypothesis", {"inputs": "10000", "5xx": "0", "text": "unchanged"})


@pytest.mark.parametrize("state", STATES)
def test_sigterm(start_server, state: str, table: Table) -> None:
    seconds = check_stop(start_server, state)
    table.add("SIGTERM", {"state": state, "exit code": "0", "after": f"{seconds:.1f} s"})


def test_minutes_of_mixed_load(stand: Stand, table: Table, soak_minutes: float) -> None:
    """Small attacks in random order; the slope of memory over the second half."""
    load = mixed_load(stand, SHARED, seconds=60 * soak_minutes, seed=4)
    table.add("Mixed load", {"minutes": f"{soak_minutes:g}"} | load.row())
    for row in load.kinds():
        table.add("Mixed load: memory by kind", row)
    for row in load.growers():
        table.add("Mixed load: attacks after which memory had grown most", row)
    assert not load.broken, "\n\n".join(map(str, load.broken))
