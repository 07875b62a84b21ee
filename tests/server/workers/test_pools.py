import asyncio
import threading

import anyio.lowlevel
import pytest

from server.workers.pools import BEGINS, Pacing, Turn, WorkerPool, checkpoint
from tests.support.engines import settle, until

pytestmark = pytest.mark.anyio


class Work:
    """A function for a worker that the test holds and lets go."""

    def __init__(self):
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.ended = threading.Event()
        self.has_finished = False

    def __call__(self):
        self.begun.set()
        try:
            assert self.gate.wait(10)
            checkpoint()
            self.has_finished = True
            return "result"
        finally:
            self.ended.set()


@pytest.fixture
async def pool():
    pool = WorkerPool("test", 1)
    yield pool
    pool.close()


def start(pool, work, *, tenant="a", priority=0):
    return asyncio.get_running_loop().create_task(pool.run(Turn(tenant, 1, priority), work))


async def test_returns_what_the_function_returns(pool):
    assert await pool.run(Turn("a", 1), lambda x, *, y: x + y, 1, y=2) == 3
    await until(lambda: pool.num_running == 0)


async def test_an_exception_is_raised(pool):
    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await pool.run(Turn("a", 1), fail)
    await until(lambda: pool.num_running == 0)


async def test_a_job_whose_caller_left_before_its_turn_never_runs(pool):
    running, gone, stays = Work(), Work(), Work()
    tasks = [start(pool, running)]
    await until(running.begun.is_set)
    tasks += [start(pool, gone), start(pool, stays)]
    await settle()
    assert (pool.num_running, pool.num_waiting) == (1, 2)
    tasks[1].cancel()
    await settle()
    assert pool.num_waiting == 1
    stays.gate.set()
    running.gate.set()
    assert await tasks[0] == await tasks[2] == "result"
    assert not gone.begun.is_set()
    await until(lambda: pool.num_running == 0)


async def test_a_running_job_ends_at_its_next_checkpoint(pool):
    work, following = Work(), Work()
    task = start(pool, work)
    await until(work.begun.is_set)
    other = start(pool, following)
    task.cancel()
    await settle()
    assert task.cancelled()
    assert (pool.num_running, pool.num_abandoned, pool.num_waiting) == (1, 1, 1)
    assert not following.begun.is_set()  # the worker is not free before the job has ended
    following.gate.set()
    work.gate.set()
    assert await other == "result"
    assert not work.has_finished
    await until(lambda: pool.num_running == 0)
    assert pool.num_abandoned == 0


@pytest.mark.parametrize("is_cancelled_first", [False, True])
async def test_a_worker_handed_to_a_caller_that_leaves_is_passed_on(pool, is_cancelled_first):
    """The turn and the cancellation come in the same turn of the event loop."""
    work, gone, following = Work(), Work(), Work()
    first = start(pool, work)
    await until(work.begun.is_set)
    leaver, other = start(pool, gone), start(pool, following)
    await settle()
    if is_cancelled_first:
        leaver.cancel()
    pool.give_back()  # as at the end of the first job
    leaver.cancel()
    await settle()
    assert leaver.cancelled()
    assert not gone.begun.is_set()
    following.gate.set()
    work.gate.set()
    await first
    assert await other == "result"


async def test_tenants_take_turns(pool):
    order = []
    work = Work()
    first = start(pool, work)
    await until(work.begun.is_set)
    tasks = [start(pool, lambda i=i: order.append(f"greedy{i}"), tenant="greedy") for i in range(5)]
    await settle()
    tasks.append(start(pool, lambda: order.append("modest"), tenant="modest"))
    await settle()
    work.gate.set()
    await first
    await asyncio.gather(*tasks)
    assert order.index("modest") <= 1


async def test_a_tenants_lowest_priority_is_first(pool):
    order = []
    work = Work()
    first = start(pool, work)
    await until(work.begun.is_set)
    tasks = [
        start(pool, lambda p=priority: order.append(p), priority=priority)
        for priority in (1, 0, -1)
    ]
    await settle()
    work.gate.set()
    await first
    await asyncio.gather(*tasks)
    assert order == [-1, 0, 1]


async def test_a_checkpoint_outside_of_a_lane_does_nothing():
    checkpoint()


async def test_a_result_after_the_loop_was_closed_is_dropped():
    work = Work()

    async def leave():
        pool = WorkerPool("short", 1)
        task = start(pool, work)
        await until(work.begun.is_set)
        task.cancel()
        await settle()
        pool.close()

    thread = threading.Thread(target=lambda: asyncio.run(leave()))
    thread.start()
    thread.join()
    work.gate.set()
    assert work.ended.wait(10)


# Pacing


@pytest.fixture
def begun():
    return []


@pytest.fixture
async def pacing():
    return Pacing()


@pytest.fixture
async def start_request(begun, pacing):
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


async def test_a_few_begin_at_once(start_request, begun):
    for number in range(BEGINS):
        start_request("a", number)
    await iterations_until(lambda: len(begun) == BEGINS)


async def test_many_begin_in_order_and_not_in_one_iteration(start_request, begun):
    """What runs between them, here this test, gets many iterations."""
    for number in range(20 * BEGINS):
        start_request("a", number)
    assert await iterations_until(lambda: len(begun) == 20 * BEGINS) >= 20
    assert begun == [("a", number) for number in range(20 * BEGINS)]


async def test_no_iteration_has_more_than_a_few(start_request, begun):
    for number in range(10 * BEGINS):
        start_request("a", number)
    before = 0
    while before < 10 * BEGINS:
        await anyio.lowlevel.checkpoint()
        assert len(begun) - before <= BEGINS
        before = len(begun)


async def test_a_tenant_with_one_request_passes_one_with_many(start_request, begun):
    for number in range(10 * BEGINS):
        start_request("many", number)
    start_request("one", 0)
    await iterations_until(lambda: ("one", 0) in begun)
    assert len(begun) <= 3 * BEGINS


async def test_one_that_leaves_takes_no_other_s_part(start_request, begun):
    tasks = [start_request("a", number) for number in range(3 * BEGINS)]
    await anyio.lowlevel.checkpoint()
    for task in tasks[BEGINS:-1]:
        task.cancel()
    await iterations_until(lambda: len(begun) == BEGINS + 1)
    assert begun[-1] == ("a", 3 * BEGINS - 1)


async def test_one_that_leaves_as_it_begins_does_not_stop_others(start_request, begun):
    tasks = [start_request("a", number) for number in range(2 * BEGINS + 1)]
    await iterations_until(lambda: len(begun) == BEGINS)
    for task in tasks:
        task.cancel()
    late = start_request("a", 99)
    await iterations_until(late.done)
    assert begun[-1] == ("a", 99)
