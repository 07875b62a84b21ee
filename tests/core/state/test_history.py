"""What the engine tells of a request: steps, batches, waits, the first block not in the cache."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.contract.messages import CacheMiss, StepOutput, merge
from core.state.history import History, StepCounts
from tests.support.builders import make_sequence
from tests.support.scripted import Rig


def test_steps_and_their_sequences_are_counted():
    rig = Rig()
    rig.add("long", prompt=[1] * 5, max_tokens=6, ignore_eos=True)
    rig.step()
    rig.add("a", prompt=[2] * 5, max_tokens=2, ignore_eos=True)
    rig.add("b", prompt=[3] * 5, max_tokens=1, ignore_eos=True)
    answers = rig.run()
    long, a, b = (answers[name].last.work for name in ("long", "a", "b"))
    assert (long.num_steps, long.num_rows, long.max_rows) == (6, 1 + 3 + 2 + 1 + 1 + 1, 3)
    assert (a.num_steps, a.num_rows, a.max_rows) == (2, 5, 3)
    assert (b.num_steps, b.num_rows, b.max_rows) == (1, 3, 3)
    assert (a.num_prompt_tokens, a.num_output_tokens, a.num_preemptions) == (5, 2, 0)


def test_chunks_of_a_prompt_are_steps_too():
    rig = Rig(max_num_batched_tokens=8)
    rig.add("r", prompt=range(20), max_tokens=2)
    assert rig.run()["r"].last.work.num_steps == 4


def test_times_are_in_order():
    rig = Rig(max_num_seqs=1, max_num_batched_tokens=8)
    rig.add("first", prompt=range(20), max_tokens=3)
    rig.add("second", prompt=range(20), max_tokens=3)
    answers = rig.run()
    first, second = (answers[name].last.work for name in ("first", "second"))
    for work in (first, second):
        assert work.started_at < work.first_token_at < work.until
        assert work.waited == work.waited_before_first == 0
    assert first.until <= second.started_at


def test_only_the_last_output_has_the_work():
    rig = Rig()
    rig.add("r", max_tokens=3)
    *others, last = rig.run()["r"].outputs
    assert others
    assert not any(output.work for output in others)
    assert merge(others[-1], last).work is last.work is not None


def test_the_work_of_a_live_request_can_be_asked_for():
    rig = Rig(max_num_seqs=1)
    rig.add("running", max_tokens=5)
    rig.add("waiting", max_tokens=5)
    rig.step()
    rig.step()
    running, waiting = rig.engine.work("running"), rig.engine.work("waiting")
    assert (running.num_steps, running.num_output_tokens) == (2, 2)
    assert waiting.started_at is None
    assert waiting.miss is None
    rig.engine.abort("running")
    assert rig.engine.work("running") is None


def test_a_preempted_request_waits_again():
    rig = Rig(num_blocks=8)
    for name in "abcdef":
        rig.add(name, prompt=[ord(name)] * 7, max_tokens=20, ignore_eos=True)
    works = [answer.last.work for answer in rig.run().values()]
    preempted = [work for work in works if work.num_preemptions]
    assert preempted
    assert all(work.waited > 0 for work in preempted)
    assert all(work.waited == 0 for work in works if not work.num_preemptions)
    assert all(work.waited < work.until - work.started_at for work in preempted)
    assert sum(work.num_preemptions for work in works) == rig.engine.stats().num_preemptions


def test_waits_before_the_first_token_are_told_apart():
    sequence = make_sequence()
    history, steps = sequence.history, StepCounts()
    miss = CacheMiss("never_seen", 0)
    history.start(miss, steps)
    history.wait()
    assert sequence.work().waited_before_first > 0, "it waits now"
    history.start(CacheMiss("evicted", 1), steps)
    assert history.miss is miss, "the first start counts"
    history.first_token()
    before = sequence.work()
    history.wait()
    after = sequence.work()
    assert after.waited_before_first == before.waited_before_first == before.waited
    assert after.waited > before.waited


def test_steps_of_a_wait_do_not_count():
    sequence, steps = make_sequence(), StepCounts()
    counted = []
    for num_rows in (9, 2, 3, 7, 4, 5, 9):
        if num_rows == 2:
            sequence.history.start(CacheMiss("never_seen", 0), steps)
        elif num_rows == 7:
            sequence.history.wait()
        elif num_rows == 4:
            sequence.history.start(CacheMiss("never_seen", 0), steps)
        steps.count(num_rows)
        work = sequence.work()
        counted.append((work.num_steps, work.num_rows, work.max_rows))
    assert counted == [
        *((0, 0, 0), (1, 2, 2), (2, 5, 3), (2, 5, 3)),
        *((3, 9, 4), (4, 14, 5), (5, 23, 9)),
    ]


@given(st.lists(st.integers(1, 5), max_size=30))
def test_the_most_sequences_of_any_last_steps_are_known(rows):
    steps = StepCounts()
    for num_rows in rows:
        steps.count(num_rows)
    assert (steps.num_steps, steps.num_rows) == (len(rows), sum(rows))
    for step in range(len(rows) + 1):
        assert steps.most_since(step) == max(rows[step:], default=0)


def test_a_wait_goes_on():
    history = History()
    since = history.waiting_since
    history.wait()
    assert history.waiting_since == since


@pytest.mark.parametrize("fault", ["guilty", "failed_rows", "bookkeeping"])
def test_a_failed_request_has_its_work(fault):
    rig = Rig()
    rig.add("r", max_tokens=5)
    rig.step()
    if fault == "guilty":
        rig.runner.guilty["r"] = RuntimeError("no")
    elif fault == "failed_rows":
        rig.runner.failed_rows.add("r")
    else:
        rig.scheduler.schedule = lambda: 1 / 0
    last = rig.run()["r"].last
    assert last.error
    assert last.work.num_output_tokens == 1
    assert last.work.num_steps >= 1


def test_requests_that_end_with_the_engine_have_their_work():
    rig = Rig()
    rig.add("r", max_tokens=5)
    rig.step()
    [output] = rig.engine.fail_all("over")
    assert output.work.num_output_tokens == 1


def test_a_request_without_anything_to_generate_has_never_started():
    rig = Rig()
    rig.add("r", max_tokens=0)
    work = rig.run()["r"].last.work
    assert work.started_at is work.first_token_at is None


def test_the_first_block_that_is_not_cached_is_named():
    rig = Rig()
    rig.add("a", prompt=range(10), max_tokens=1)
    assert rig.run()["a"].last.work.miss == CacheMiss("never_seen", 0)
    rig.add("b", prompt=range(10), max_tokens=1)
    work = rig.run()["b"].last.work
    assert (work.miss, work.num_cached_tokens) == (CacheMiss("last_block", 2), 8)
    rig.add("c", prompt=[*range(4), 99, *range(5, 10)], max_tokens=1)
    assert rig.run()["c"].last.work.miss == CacheMiss("never_seen", 1)


def test_an_output_gets_its_work_afterwards():
    output = StepOutput(request_id="r", error="no", is_retryable=True)
    work = make_sequence().work()
    assert output.after(work) == StepOutput(
        request_id="r", error="no", is_retryable=True, work=work
    )
