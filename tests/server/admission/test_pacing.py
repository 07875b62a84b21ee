import asyncio

import anyio.lowlevel
import pytest

from server.admission.pacing import BEGINS, Pacing

pytestmark = pytest.mark.anyio


@pytest.fixture
def begun():
    return []


@pytest.fixture
async def pacing():
    return Pacing()


@pytest.fixture
async def start(begun, pacing):
    """Start requests; they say in ``begun`` when they begin."""

    async def begin(tenant, number):
        await pacing.begin(tenant)
        begun.append((tenant, number))

    def start(tenant, number):
        return asyncio.get_running_loop().create_task(begin(tenant, number))

    return start


async def iterations_until(is_true):
    """How many iterations of the loop pass until then."""
    for number in range(1000):
        if is_true():
            return number
        await anyio.lowlevel.checkpoint()
    raise AssertionError


async def test_a_few_begin_at_once(start, begun):
    for number in range(BEGINS):
        start("a", number)
    await iterations_until(lambda: len(begun) == BEGINS)


async def test_many_begin_in_order_and_not_in_one_iteration(start, begun):
    """What runs between them, here this test, gets many iterations."""
    for number in range(20 * BEGINS):
        start("a", number)
    assert await iterations_until(lambda: len(begun) == 20 * BEGINS) >= 20
    assert begun == [("a", number) for number in range(20 * BEGINS)]


async def test_no_iteration_has_more_than_a_few(start, begun):
    for number in range(10 * BEGINS):
        start("a", number)
    before = 0
    while before < 10 * BEGINS:
        await anyio.lowlevel.checkpoint()
        assert len(begun) - before <= BEGINS
        before = len(begun)


async def test_a_tenant_with_one_request_passes_one_with_many(start, begun):
    for number in range(10 * BEGINS):
        start("many", number)
    start("one", 0)
    await iterations_until(lambda: ("one", 0) in begun)
    assert len(begun) <= 3 * BEGINS


async def test_one_that_leaves_takes_no_other_s_part(start, begun):
    tasks = [start("a", number) for number in range(3 * BEGINS)]
    await anyio.lowlevel.checkpoint()
    for task in tasks[BEGINS:-1]:
        task.cancel()
    await iterations_until(lambda: len(begun) == BEGINS + 1)
    assert begun[-1] == ("a", 3 * BEGINS - 1)


async def test_one_that_leaves_as_it_begins_does_not_stop_others(start, begun):
    tasks = [start("a", number) for number in range(2 * BEGINS + 1)]
    await iterations_until(lambda: len(begun) == BEGINS)
    for task in tasks:
        task.cancel()
    late = start("a", 99)
    await iterations_until(late.done)
    assert begun[-1] == ("a", 99)
