from core.observe.step_timer import STAGES, StepTimer
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


def test_a_step_counts_in_the_histogram_of_each_stage():
    timer = StepTimer()
    ticking(timer)
    for _ in range(3):
        timer.start()
        timer.lap("schedule")
        timer.lap("forward")
        timer.computed(2, 40)
        timer.end()
    stages = {stage: histogram.read() for stage, histogram in timer.histograms.stages.items()}
    assert list(stages) == list(STAGES)
    assert {counts.num_values for counts in stages.values()} == {3}
    assert {stage: counts.total for stage, counts in stages.items()} == timer.seconds()
    assert timer.histograms.step.read().total == 9.0
    assert timer.histograms.num_sequences.read().total == 6
    assert timer.histograms.num_tokens.read().total == 120


def test_a_step_that_computed_nothing_does_not_count():
    timer = StepTimer()
    ticking(timer)
    timer.start()
    timer.end()
    timer.start()
    timer.lap("forward")
    timer.computed(1, 1)
    timer.end()
    timer.start()
    timer.end()
    assert timer.histograms.step.read().num_values == 1
    assert timer.histograms.step.read().total == 2.0
    assert timer.histograms.stages["delivery"].read().total == 1.0


def test_the_parts_of_a_repeated_step_are_batches_of_their_own_and_one_step():
    rig = Rig()
    rig.runner.failures.append(RuntimeError("failed"))
    for name in "abc":
        rig.add(name, max_tokens=1)
    rig.step()
    rig.engine.timer.end()
    histograms = rig.engine.timer.histograms
    assert histograms.num_sequences.read().total == 3
    assert histograms.num_sequences.read().num_values == 2
    assert histograms.step.read().num_values == 1
