import asyncio
import threading

import pytest

from server.admission.checkpoint import checkpoint
from server.admission.pools import Turn, WorkerPool
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
    pool._pass_on()  # as at the end of the first job
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
