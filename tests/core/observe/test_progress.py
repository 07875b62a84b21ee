from core.observe.progress import Progress
from tests.support.clock import Clock


def test_the_current_work_is_timed_and_the_longest_remembered():
    clock = Clock(100.0)
    progress = Progress(clock)
    assert (progress.seconds, progress.longest) == (0.0, 0.0)
    progress.begin()
    clock.now += 3
    assert progress.seconds == 3.0
    progress.begin()
    clock.now += 1
    assert (progress.seconds, progress.longest) == (1.0, 3.0)


def test_waiting_is_not_work():
    clock = Clock(100.0)
    progress = Progress(clock)
    progress.begin()
    clock.now += 2
    progress.end()
    clock.now += 50
    assert (progress.seconds, progress.longest) == (0.0, 2.0)
    progress.begin()
    assert (progress.seconds, progress.longest) == (0.0, 2.0)
