from bench.in_process.schedule_times import ScheduleTimes
from tests.support.scripted import Rig


def test_requests_are_noted_when_they_are_first_scheduled():
    rig, times = Rig(max_num_seqs=2), ScheduleTimes()
    rig.engine.observe(times.on_schedule)
    for name in "abc":
        rig.add(name, b"xyz", max_tokens=3)
    rig.run()
    first, second, late = (times.take(name) for name in "abc")
    assert first == second > 0
    assert late > first
    assert times.take("a") is None
    assert times.take("unknown") is None
