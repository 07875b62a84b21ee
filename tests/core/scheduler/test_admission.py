"""Who is admitted when blocks are scarce."""

from __future__ import annotations

from core.scheduler.demand import Demand
from core.state.sequence import Sequence, Status
from tests.support.builders import blocks_of
from tests.support.steps import Steps


def unlike(name: int, num_tokens: int) -> range:
    """A prompt that shares nothing with one of another name."""
    return range(name * 1000, name * 1000 + num_tokens)


def run_until_admitted(steps: Steps, sequence: Sequence) -> int:
    """The number of steps without the sequence."""
    num_steps = 0
    while sequence.request_id not in steps.step():
        num_steps += 1
        assert num_steps < 1000, "never admitted"
    return num_steps


def test_what_running_sequences_are_expected_to_need_is_reserved():
    steps = Steps(num_blocks=10, block_size=4, demand=Demand())
    steps.add(unlike(1, 8), "a", max_tokens=20)  # 7 blocks at its end
    late = steps.add(unlike(2, 4), "late", max_tokens=16)  # 5
    for _ in range(9):  # then both at their peak take 10
        assert "late" not in steps.step()
    run_until_admitted(steps, late)
    while steps.step():
        pass
    assert steps.scheduler.num_preemptions == 0


def test_a_sequence_whose_blocks_will_be_freed_in_time_is_not_waited_for():
    steps = Steps(num_blocks=13, block_size=4, demand=Demand())
    steps.add(unlike(1, 16), "ends soon", max_tokens=4)
    steps.add(unlike(2, 4), "long", max_tokens=28)  # 8 blocks at its end, the other's 5 are free
    assert steps.step().keys() == {"ends soon", "long"}


def test_a_shared_prefix_is_reserved_once():
    """Ten sequences of 10 blocks share 8: they fit 32 blocks, but not if each freed its own 10."""
    steps = Steps(num_blocks=34, block_size=4, max_num_seqs=10, demand=Demand())
    prefix = unlike(0, 32)
    steps.add([*prefix, 1], "0", max_tokens=4)
    steps.step()
    for i in range(1, 10):
        steps.add([*prefix, 10 + i], str(i), max_tokens=4)
    assert len(steps.step()) == 10
    while steps.step():
        pass
    assert steps.scheduler.num_preemptions == 0


def test_short_outputs_let_more_sequences_in():
    steps = Steps(num_blocks=20, block_size=4, max_num_seqs=16, demand=Demand())

    def num_admitted() -> int:
        sequences = [steps.add([i], str(i), max_tokens=32) for i in range(8)]
        num_running = len(steps.step())
        for sequence in sequences:
            steps.scheduler.finish(sequence)  # after one token, if it ran
        return num_running

    first = num_admitted()
    for _ in range(10):
        last = num_admitted()
    assert (first, last) == (2, 8)


def after_a_preemption() -> tuple[Steps, Sequence, Sequence]:
    """A stream runs, a sequence of 8 blocks was preempted, and a tiny one waits behind it."""
    steps = Steps(num_blocks=11, block_size=4)
    stream = steps.add(unlike(1, 8), "stream", max_tokens=16)
    big = steps.add(unlike(2, 24), "big", max_tokens=16)
    while big.num_preemptions == 0:
        steps.step()
    tiny = steps.add([7], "tiny", max_tokens=1)
    assert steps.kv.num_free_blocks > 3  # for the tiny one and two spare blocks
    return steps, stream, tiny


def test_after_a_preemption_no_sequence_is_admitted_until_one_ends():
    steps, stream, tiny = after_a_preemption()
    while stream.status is not Status.FINISHED:
        assert steps.step() == {"stream": 1}
    assert tiny.status is Status.WAITING
    assert steps.step().keys() == {"big", "tiny"}


def test_an_abort_counts_as_an_end():
    steps, stream, _ = after_a_preemption()
    steps.scheduler.finish(stream)
    assert steps.step().keys() == {"big", "tiny"}


def test_the_end_of_one_sequence_does_not_free_a_prefix_that_others_share():
    steps = Steps(num_blocks=40, block_size=4, max_num_seqs=10, demand=Demand())
    prefix = unlike(0, 32)
    steps.add([*prefix, 100], "long", max_tokens=80)
    steps.step()
    for i in range(6):
        steps.add([*prefix, i], f"short {i}", max_tokens=4)
    assert len(steps.step()) == 7
    steps.add([*prefix, 101], "late", max_tokens=80)  # 8 shared blocks and 21 for each long one
    assert "late" not in steps.step()


def test_the_head_runs_when_all_running_sequences_were_preempted():
    steps = Steps(num_blocks=8, block_size=4)
    stream = steps.add(unlike(1, 14), "stream", max_tokens=12)
    steps.step()
    steps.add(unlike(2, 24), "big", max_tokens=2)
    assert steps.step() == {"stream": 1}
    steps.scheduler.recompute_holders(set(blocks_of(stream)), None)
    assert steps.scheduler.num_running == 0
    assert steps.step().keys() == {"stream"}


def test_a_head_that_does_not_fit_is_passed():
    steps = Steps(num_blocks=8, block_size=4)
    steps.add(unlike(1, 14), "stream", max_tokens=12)
    steps.step()
    big = steps.add(unlike(2, 24), "big", max_tokens=2)
    small = [steps.add(unlike(3 + i, 4), f"small {i}", max_tokens=1) for i in range(4)]
    assert steps.step().keys() == {"stream", "small 0"}  # one at a time: each takes two blocks
    for _ in range(4):
        steps.step()
    assert all(s.status is Status.FINISHED for s in small)
    assert big.status is Status.WAITING
    assert steps.step() == {"stream": 1}


def test_those_who_pass_a_head_have_together_no_more_tokens_than_it():
    """Small requests arrive for ever; the head has 20 tokens, each of them 5."""
    steps = Steps(num_blocks=9, block_size=4, demand=Demand())
    steps.add(unlike(1, 14), "stream", max_tokens=12)
    steps.step()
    big = steps.add(unlike(2, 16), "big", max_tokens=4)
    passed = set()
    for i in range(30):
        steps.add(unlike(3 + i, 4), f"small {i}", max_tokens=1)
        plan = steps.step()
        if "big" in plan:
            break
        passed |= plan.keys() - {"stream"}
    assert big.status is Status.RUNNING
    assert passed == {f"small {i}" for i in range(4)}


def test_a_head_is_not_passed_anew_after_its_preemption():
    steps = Steps(num_blocks=9, block_size=4)
    steps.add(unlike(1, 14), "stream", max_tokens=12)
    steps.step()
    big = steps.add(unlike(2, 24), "big", max_tokens=12)
    for i in range(6):
        steps.add(unlike(3 + i, 4), f"small {i}", max_tokens=1)
        steps.step()
    num_passed_tokens = big.num_passed_tokens
    assert num_passed_tokens == 24
    while big.status is not Status.FINISHED:
        steps.add(unlike(50 + steps.scheduler.num_waiting, 4), "late", max_tokens=1)
        steps.step()
        assert big.num_passed_tokens == num_passed_tokens


def test_nobody_passes_a_head_that_waits_for_a_place():
    steps = Steps(max_num_seqs=1)
    steps.add([1], "a", max_tokens=3)
    steps.add(unlike(2, 30), "big", max_tokens=1)
    steps.add([3], "small", max_tokens=1)
    assert [list(steps.step()) for _ in range(5)] == [["a"], ["a"], ["a"], ["big"], ["small"]]


def test_a_preempted_sequence_returns_to_its_place_in_the_queue():
    steps = Steps(num_blocks=9, block_size=4)
    stream = steps.add(unlike(1, 14), "stream", max_tokens=20)
    steps.step()
    big = steps.add(unlike(2, 24), "big", max_tokens=1)
    small = steps.add(unlike(3, 7), "small", max_tokens=12)
    while small.num_preemptions == 0:
        steps.step()
    assert [*steps.scheduler] == [stream, big, small]


def test_a_head_that_does_not_fit_is_looked_at_once_per_block(monkeypatch):
    steps = Steps(num_blocks=8, block_size=4)
    steps.add(unlike(1, 14), "stream", max_tokens=12)
    steps.step()
    steps.add(unlike(2, 24), "big", max_tokens=2)
    looks = []
    has_room = steps.kv.has_room
    monkeypatch.setattr(
        steps.kv, "has_room", lambda *args, **kwargs: looks.append(1) or has_room(*args, **kwargs)
    )
    num_looks = []
    for _ in range(6):
        steps.step()
        num_looks.append(len(looks))
        looks.clear()
    assert num_looks == [1, 0, 0, 0, 0, 1]


def test_a_restart_forgets_a_preemption():
    steps, _, _ = after_a_preemption()
    steps.scheduler.restart()
    names = ["x", "y"]
    for i, name in enumerate(names):
        steps.add(unlike(7 + i, 4), name, max_tokens=2)
    assert list(steps.step()) == names
