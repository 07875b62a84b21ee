import pytest

from server.net.timer import Timer

pytestmark = pytest.mark.anyio


async def test_it_calls_back_once(loop):
    calls = []
    timer = Timer(loop)
    timer.start(1.0, lambda: calls.append(loop.time()))
    assert timer.is_running
    loop.advance(0.9)
    assert not calls
    loop.advance(5)
    assert calls == [1001.0]
    assert not timer.is_running


async def test_a_new_start_replaces_the_old_one(loop):
    calls = []
    timer = Timer(loop)
    timer.start(1.0, lambda: calls.append("old"))
    timer.start(2.0, lambda: calls.append("new"))
    loop.advance(5)
    assert calls == ["new"]


async def test_one_that_is_stopped_does_not_call_back(loop):
    calls = []
    timer = Timer(loop)
    for _ in range(2):
        timer.stop()
    timer.start(1.0, lambda: calls.append(1))
    timer.stop()
    loop.advance(5)
    assert (calls, timer.is_running) == ([], False)


async def test_a_callback_may_start_it_again(loop):
    calls = []
    timer = Timer(loop)

    def again():
        calls.append(loop.time())
        if len(calls) < 3:
            timer.start(1.0, again)

    timer.start(1.0, again)
    loop.advance(5)
    assert calls == [1001.0, 1002.0, 1003.0]
