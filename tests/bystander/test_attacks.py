"""Nobody beside an attack notices it: the quick half in ``make test``, all of it in the soak."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bystander import attacks
from tests.bystander.arena import ATTACKS, Attack
from tests.bystander.stand import Stand
from tests.bystander.table import Table

assert attacks.__all__, "importing the package registers the attacks"

OPEN = {
    "multipleOf with a large prime, senders leave",
    "schema whose allOfs double at each level",
    "one header without end",
    "pipelined requests, client leaves",
    "allowed_token_ids with millions of copies of an id, n=8",
    "two 8 MB prompts whose senders leave",
    "/tokenize of 8 MB with return_token_strs",
}
"""Attacks that hurt today. The soak runs and reports them all the same."""

QUICK = [one for one in ATTACKS.values() if one.is_quick and one.name not in OPEN]
SHARED = [one for one in ATTACKS.values() if not one.has_own_server]
OWN = [one for one in ATTACKS.values() if one.has_own_server]


def name_of(attack: Attack) -> str:
    return attack.name


@pytest.fixture(scope="module")
def quick_stand(start_server) -> Iterator[Stand]:
    stand = Stand(start_server().wait_ready(), size=0.1, num_tokens=300)
    yield stand
    stand.close()


@pytest.fixture(scope="module")
def stand(start_server) -> Iterator[Stand]:
    stand = Stand(start_server().wait_ready(), size=1, num_tokens=1500)
    yield stand
    stand.close()


@pytest.mark.slow
@pytest.mark.parametrize("attack", QUICK, ids=name_of)
def test_quick(quick_stand: Stand, attack: Attack) -> None:
    outcome = quick_stand.run(attack, calm_seconds=1.2, num_tries=3)
    assert not outcome.broken, str(outcome)


@pytest.mark.soak
@pytest.mark.parametrize("attack", SHARED, ids=name_of)
def test_whole(stand: Stand, attack: Attack, table: Table) -> None:
    outcome = stand.run(attack, calm_seconds=3)
    table.add("Attacks", outcome.row())
    assert not outcome.broken, str(outcome)


@pytest.mark.soak
@pytest.mark.parametrize("attack", OWN, ids=name_of)
def test_whole_on_a_server_of_its_own(start_server, attack: Attack, table: Table) -> None:
    server = start_server(*attack.flags, num_descriptors=attack.num_descriptors).wait_ready()
    stand = Stand(server, size=1, num_tokens=1500)
    try:
        outcome = stand.run(attack, calm_seconds=3)
    finally:
        stand.close()
        server.stop()
    table.add("Attacks", outcome.row())
    assert not outcome.broken, str(outcome)
