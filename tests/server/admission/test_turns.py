import asyncio

import anyio.lowlevel
import pytest

from server.admission.turns import PER_TURN, Turns

pytestmark = pytest.mark.anyio


@pytest.fixture
def begun():
    return []


@pytest.fixture
async def turns():
    return Turns()


@pytest.fixture
async def start(begun, turns):
    """Start requests; they say in ``begun`` when they begin."""

    async def begin(tenant, number):
        await turns.begin(tenant)
        begun.append((tenant, number))

    def start(tenant, number):
        return asyncio.get_running_loop().create_task(begin(tenant, number))

    return start


async def turns_until(is_true):
    """How many turns of the loop pass until then."""
    for number in range(1000):
        if is_true():
            return number
        await anyio.lowlevel.checkpoint()
    raise AssertionError


async def test_a_few_begin_at_once(start, begun):
    for number in range(PER_TURN):
        start("a", number)
    await turns_until(lambda: len(begun) == PER_TURN)


async def test_many_begin_in_order_and_not_in_one_turn(start, begun):
    """What runs between them, here this test, gets many turns."""
    for number in range(20 * PER_TURN):
        start("a", number)
    assert await turns_until(lambda: len(begun) == 20 * PER_TURN) >= 20
    assert begun == [("a", number) for number in range(20 * PER_TURN)]


async def test_no_turn_has_more_than_a_few(start, begun):
    for number in range(10 * PER_TURN):
        start("a", number)
    before = 0
    while before < 10 * PER_TURN:
        await anyio.lowlevel.checkpoint()
        assert len(begun) - before <= PER_TURN
        before = len(begun)


async def test_a_tenant_with_one_request_passes_one_with_many(start, begun):
    for number in range(10 * PER_TURN):
        start("many", number)
    start("one", 0)
    await turns_until(lambda: ("one", 0) in begun)
    assert len(begun) <= 3 * PER_TURN


async def test_those_that_wait_are_counted(start, turns, begun):
    tasks = [start("a", number) for number in range(PER_TURN + 2)] + [start("b", 0)]
    await anyio.lowlevel.checkpoint()
    assert (turns.num_waiting("a"), turns.num_waiting("b")) == (2, 1)
    tasks[-1].cancel()
    await turns_until(lambda: len(begun) == PER_TURN + 2)
    assert (turns.num_waiting("a"), turns.num_waiting("b")) == (0, 0)


async def test_one_that_leaves_takes_no_turn(start, begun):
    tasks = [start("a", number) for number in range(3 * PER_TURN)]
    await anyio.lowlevel.checkpoint()
    for task in tasks[PER_TURN:-1]:
        task.cancel()
    await turns_until(lambda: len(begun) == PER_TURN + 1)
    assert begun[-1] == ("a", 3 * PER_TURN - 1)


async def test_one_that_leaves_in_its_turn_does_not_stop_the_line(start, begun):
    tasks = [start("a", number) for number in range(2 * PER_TURN + 1)]
    await turns_until(lambda: len(begun) == PER_TURN)
    for task in tasks:
        task.cancel()
    late = start("a", 99)
    await turns_until(late.done)
    assert begun[-1] == ("a", 99)
