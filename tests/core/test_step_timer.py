from core.step_timer import STAGES, StepTimer
from tests.support.scripted import Rig


def ticking(timer):
    """A clock that advances one second per reading."""
    seconds = iter(range(10**6))
    timer.clock = lambda: next(seconds) * 10**9


def test_a_lap_charges_the_time_since_the_last_reading():
    timer = StepTimer()
    ticking(timer)
    timer.start()
    timer.lap("schedule")
    timer.lap("forward")
    timer.lap("forward")
    assert timer.seconds() == dict.fromkeys(STAGES, 0.0) | {"schedule": 1.0, "forward": 2.0}


def test_time_between_steps_belongs_to_no_stage():
    timer = StepTimer()
    ticking(timer)
    timer.start()
    timer.lap("delivery")
    timer.clock()
    timer.start()
    timer.lap("schedule")
    assert sum(timer.seconds().values()) == 2.0


def test_an_engine_times_its_own_stages():
    rig = Rig()
    ticking(rig.engine.timer)
    rig.add("r", b"abc", max_tokens=3)
    rig.run()
    stages = {stage: seconds for stage, seconds in rig.engine.timer.seconds().items() if seconds}
    assert stages == {"schedule": 3.0, "results": 3.0, "commit": 3.0}


def test_a_failed_step_is_timed_too():
    rig = Rig()
    ticking(rig.engine.timer)
    rig.runner.failures.append(RuntimeError("failed"))
    rig.add("r")
    rig.step()
    stages = {stage: seconds for stage, seconds in rig.engine.timer.seconds().items() if seconds}
    assert stages == {"schedule": 1.0, "results": 2.0, "commit": 1.0}
