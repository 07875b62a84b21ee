"""Tenants share the engine: slots, blocks and the tokens of a step."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.scheduler import admission
from core.scheduler.demand import Demand
from core.scheduler.victims import victim_of
from core.state.sequence import Sequence, Status
from tests.support.steps import Steps


def unlike(name: int, num_tokens: int) -> range:
    """A prompt that shares nothing with one of another name."""
    return range(name * 1000, name * 1000 + num_tokens)


def crowd(steps: Steps, count: int, *, tenant: str = "crowd", **fields: int) -> list[Sequence]:
    return [
        steps.add(unlike(i, 8), f"{tenant} {i}", tenant=tenant, **{"max_tokens": 40, **fields})
        for i in range(count)
    ]


def steps_until_first_token(steps: Steps, sequence: Sequence) -> int:
    num_steps = 0
    while sequence.num_output_tokens == 0:
        steps.step()
        num_steps += 1
    return num_steps


def wait_of_a_chat(tenant: str, *, priority: int = 0, crowd_priority: int = 0) -> int:
    """Steps until the first token of a chat that comes while 500 prompts of a crowd wait."""
    steps = Steps(num_blocks=200, max_num_seqs=8)
    crowd(steps, 500, max_tokens=16, priority=crowd_priority)
    for _ in range(10):
        steps.step()
    fields = {"tenant": tenant, "priority": priority, "max_tokens": 4}
    return steps_until_first_token(steps, steps.add(unlike(900, 8), "chat", **fields))


@pytest.mark.slow
def test_a_chat_does_not_wait_for_500_prompts_of_another_tenant():
    assert wait_of_a_chat("chat") == 1
    assert wait_of_a_chat("crowd") > 900


def test_a_priority_is_one_of_a_tenants_own_requests():
    assert wait_of_a_chat("crowd", priority=-1) < 16
    assert wait_of_a_chat("chat", priority=1000, crowd_priority=-1000) == 1


def test_one_tenant_preempts_none_of_its_own():
    steps = Steps(num_blocks=200, max_num_seqs=4)
    crowd(steps, 8)
    for _ in range(20):
        steps.step()
    assert steps.scheduler.num_running == 4
    assert steps.scheduler.num_preemptions == 0


def test_the_last_admitted_of_the_crowd_gives_up_its_slot_and_goes_on_later():
    steps = Steps(num_blocks=200, max_num_seqs=4)
    sequences = crowd(steps, 4)
    for _ in range(5):
        steps.step()
    steps.add(unlike(900, 8), "chat", tenant="chat", max_tokens=2)
    assert steps.step().keys() == {"crowd 0", "crowd 1", "crowd 2", "chat"}
    assert sequences[3].num_preemptions == 1
    steps.step()
    assert steps.step().keys() == {f"crowd {i}" for i in range(4)}
    while steps.step():
        pass
    assert all(s.status is Status.FINISHED for s in sequences)


def test_a_tenant_keeps_its_last_running_sequence():
    steps = Steps(num_blocks=200, max_num_seqs=3)
    for name in "abc":
        crowd(steps, 1, tenant=name)
    steps.step()
    late = steps.add(unlike(900, 8), "late", tenant="d", max_tokens=4)
    steps.step()
    assert late.status is Status.WAITING
    assert steps.scheduler.num_preemptions == 0


def test_blocks_are_given_up_too():
    steps = Steps(num_blocks=60, max_num_seqs=8, demand=Demand())
    crowd(steps, 100)  # 12 blocks each at their end: five of them fit
    for _ in range(5):
        steps.step()
    assert steps.scheduler.num_running == 5
    chat = steps.add(unlike(900, 24), "chat", tenant="chat", max_tokens=16)
    assert steps_until_first_token(steps, chat) == 1


def test_whom_to_preempt_is_asked_again_only_when_something_has_changed(monkeypatch):
    asked = []
    monkeypatch.setattr(
        admission, "victim_of", lambda *args, **named: asked.append(1) or victim_of(*args, **named)
    )
    steps = Steps(num_blocks=16, block_size=4)
    running = crowd(steps, 4)
    steps.step()
    steps.add(unlike(900, 40), "big", tenant="other", max_tokens=2)
    counts = []
    for _ in range(4):
        asked.clear()
        steps.step()
        counts.append(len(asked))
    assert counts[0] > 0
    assert counts[1:] == [0, 0, 0]
    steps.scheduler.finish(running[0])
    asked.clear()
    steps.step()
    assert asked


def test_no_more_than_half_of_the_running_sequences_is_preempted_for_one():
    """Three of the five would have to be, for 39 blocks beside those of two when it ends."""
    steps = Steps(num_blocks=60, max_num_seqs=8, demand=Demand())
    crowd(steps, 100)
    for _ in range(5):
        steps.step()
    assert steps.scheduler.num_running == 5
    steps.add(unlike(900, 140), "large", tenant="large", max_tokens=16)
    for _ in range(20):
        steps.step()
    assert steps.scheduler.num_preemptions == 0


def test_the_blocks_of_those_that_would_be_preempted_count_as_free():
    """Four blocks are free. The head needs them all, and a spare one for each that runs."""
    steps = Steps(num_blocks=8, max_num_seqs=4)
    steps.add(unlike(0, 1), "first", tenant="crowd", max_tokens=26)
    last = steps.add(unlike(1, 11), "last", tenant="crowd", max_tokens=29)
    steps.step()
    assert steps.kv.num_free_blocks == 4
    steps.add(unlike(900, 16), "head", tenant="head", max_tokens=16)
    assert steps.step() == {"first": 1, "head": 16}
    assert last.num_preemptions == 1


def test_they_count_as_free_for_what_others_will_need_too():
    """The one that goes on will need blocks of the one that was preempted."""
    steps = Steps(num_blocks=14, max_num_seqs=4, demand=Demand())
    steps.add(unlike(0, 16), "first", tenant="crowd", max_tokens=16)
    steps.add(unlike(1, 9), "last", tenant="crowd", max_tokens=9)
    for _ in range(3):
        steps.step()
    steps.add(unlike(900, 8), "head", tenant="head", max_tokens=12)
    assert steps.step() == {"first": 1, "head": 8}


def test_what_the_others_will_free_is_theirs_not_that_of_the_preempted():
    """With the blocks of one victim, the rest would seem to free more at their ends than they have;
    one more has to go."""
    steps = Steps(num_blocks=22, max_num_seqs=4, demand=Demand())
    lengths = [(13, 6), (13, 17), (15, 24), (7, 9)]
    for i, (num_tokens, max_tokens) in enumerate(lengths):
        prompt = unlike(i, num_tokens)
        steps.add(prompt, f"crowd {i}", tenant="crowd", max_tokens=max_tokens)
    for _ in range(3):
        steps.step()
    steps.add(unlike(900, 9), "head", tenant="head", max_tokens=17)
    assert steps.step() == {"crowd 0": 1, "crowd 1": 1, "head": 9}


def test_a_block_that_head_and_victim_share_is_not_both_freed_and_in_use():
    """The head needs 11 blocks. Four are free, and the last of the crowd holds 6, of which it
    shares 5 with the head: with them there are 10, so nobody is preempted for nothing."""
    steps = Steps(num_blocks=16, max_num_seqs=8)
    steps.add(unlike(0, 7), "a", tenant="crowd", max_tokens=12)
    steps.add(unlike(0, 18), "b", tenant="crowd", max_tokens=29)
    steps.add(unlike(1, 21), "c", tenant="crowd", max_tokens=16)
    steps.step()
    head = steps.add(unlike(1, 42), "head", tenant="head", max_tokens=11)
    assert steps.step() == {"a": 1, "b": 1, "c": 1}
    assert head.status is Status.WAITING
    assert steps.scheduler.num_preemptions == 0
    while head.status is not Status.FINISHED:
        steps.step()


def test_blocks_that_two_victims_share_are_freed_by_both():
    """The two last ones of the crowd share four blocks. With them, the head's six are free."""
    steps = Steps(num_blocks=13, max_num_seqs=8)
    steps.add(unlike(0, 1), "a", tenant="crowd", max_tokens=20)
    steps.add(unlike(1, 1), "b", tenant="crowd", max_tokens=20)
    steps.add(unlike(2, 17), "c", tenant="crowd", max_tokens=20)
    steps.step()
    steps.add(unlike(2, 17), "d", tenant="crowd", max_tokens=20)
    steps.step()
    assert steps.kv.num_free_blocks == 5
    steps.add(unlike(9, 24), "head", tenant="head", max_tokens=1)
    assert steps.step() == {"a": 1, "b": 1, "head": 24}


def test_if_blocks_run_out_the_tenant_with_the_most_sequences_is_preempted():
    steps = Steps(num_blocks=24, max_num_seqs=8)
    sequences = crowd(steps, 4, max_tokens=60)
    steps.step()
    single = steps.add(unlike(900, 8), "single", tenant="single", max_tokens=20)
    while single.status is not Status.FINISHED:
        steps.step()
    assert steps.scheduler.num_preemptions > 0
    assert single.num_preemptions == 0
    assert sequences[0].num_preemptions == 0


def test_tenants_get_equal_parts_of_the_prompt_tokens_of_a_step():
    steps = Steps(num_blocks=400, max_num_seqs=8, max_num_batched_tokens=64)
    for i in range(5):
        steps.add(unlike(i, 100), f"a{i}", tenant="a")
    steps.add(unlike(5, 200), "b", tenant="b")
    computed = steps.step()
    assert computed["b"] == 32
    assert sum(computed.values()) == 64


def test_what_a_tenant_does_not_need_goes_to_others():
    steps = Steps(num_blocks=400, max_num_seqs=8, max_num_batched_tokens=64)
    steps.add(unlike(0, 200), "a", tenant="a")
    steps.add(unlike(1, 8), "b", tenant="b")
    assert steps.step() == {"a": 56, "b": 8}
    steps.add(unlike(1, 9), "b", tenant="b")  # all but one of its tokens are cached
    assert steps.step()["a"] >= 64 - steps.block_size


def test_what_a_tenant_finds_in_this_step_goes_to_others():
    steps = Steps(num_blocks=400, max_num_seqs=8, max_num_batched_tokens=64)
    steps.add(unlike(0, 21), "a", tenant="a")
    steps.add(unlike(0, 22), "b", tenant="b")  # 20 tokens are those of a
    steps.add(unlike(1, 200), "c", tenant="c")
    assert steps.step() == {"a": 21, "b": 2, "c": 40}


def test_what_a_tenant_finds_goes_to_others_also_if_they_came_first():
    steps = Steps(num_blocks=400, max_num_seqs=8, max_num_batched_tokens=64)
    steps.add(unlike(1, 200), "c", tenant="c")
    steps.add(unlike(0, 21), "a", tenant="a")
    steps.add(unlike(0, 22), "b", tenant="b")
    assert steps.step() == {"a": 21, "b": 2, "c": 40}


def test_a_tenant_gets_at_least_a_block_and_tenants_take_turns():
    steps = Steps(num_blocks=400, max_num_seqs=8, max_num_batched_tokens=10)
    for i in range(5):
        steps.add(unlike(i, 40), f"{i}", tenant=str(i))
    found = [steps.step() for _ in range(5)]
    assert [computed.keys() for computed in found] == [
        {"0", "1"},
        {"2", "3"},
        {"4", "0"},
        {"1", "2"},
        {"3", "4"},
    ]
    assert all(min(computed.values()) >= 4 for computed in found)


def test_a_short_prompt_waits_for_no_others_if_steps_have_room_for_one_block_of_prompts():
    """Steps with streams are expected to last too long."""
    steps = Steps(num_blocks=400, max_num_seqs=8, prefill_chunk_size=4)
    steps.add(unlike(900, 4), "stream", tenant="crowd", max_tokens=100)
    steps.step()
    for i in range(4):
        steps.add(unlike(i, 40), f"{i}", tenant="crowd")
    for _ in range(3):
        steps.step()
    assert steps_until_first_token(steps, steps.add([7], "chat", tenant="chat")) <= 2


TENANTS = st.sampled_from(["a", "b", "c"])


@settings(max_examples=150, deadline=None)
@given(
    requests=st.lists(
        st.tuples(
            TENANTS,
            st.integers(1, 24),
            st.integers(1, 8),
            st.integers(0, 12),
            st.integers(-2, 2),
        ),
        min_size=1,
        max_size=14,
    ),
    block_size=st.integers(1, 4),
    num_spare_blocks=st.integers(0, 30),
    max_num_seqs=st.integers(1, 6),
    demand=st.sampled_from([Demand, None]),
)
def test_any_traffic_of_tenants_ends(requests, block_size, num_spare_blocks, max_num_seqs, demand):
    """Requests are (tenant, prompt tokens, ``max_tokens``, step of arrival, priority)."""
    steps = Steps(
        num_blocks=-(-32 // block_size) + num_spare_blocks,
        block_size=block_size,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_seqs + 8,
        demand=demand and demand(),
    )
    arriving = sorted(enumerate(requests), key=lambda item: item[1][3])
    sequences: list[Sequence] = []
    for number in range(2_000):
        while arriving and arriving[0][1][3] <= number:
            i, (tenant, length, max_tokens, _, priority) = arriving.pop(0)
            prompt = [i % 2] * length  # some share their prefix
            fields = {"tenant": tenant, "max_tokens": max_tokens, "priority": priority}
            sequences.append(steps.add(prompt, str(i), **fields))
        if not steps.step() and not arriving:
            break
    assert [s.num_output_tokens for s in sequences] == [s.params.max_tokens for s in sequences]
    assert steps.kv.num_free_blocks == steps.kv.num_blocks
    assert not steps.scheduler._admission._waiting._tenants


@pytest.mark.parametrize("num_tenants", [2, 4])
def test_tenants_that_always_wait_get_equal_numbers_of_tokens(num_tenants):
    """The first sends prompts that are four times as long."""
    steps = Steps(num_blocks=400, max_num_seqs=4, max_num_batched_tokens=32)
    sequences: dict[str, list[Sequence]] = {str(i): [] for i in range(num_tenants)}
    for number in range(200):
        for name, own in sequences.items():
            prompt = unlike(number * 4 + int(name), 32 if name == "0" else 8)
            own.append(steps.add(prompt, f"{name} {number}", tenant=name, max_tokens=2))
    for _ in range(100):
        steps.step()
    used = [sum(s.num_tokens for s in own if s.num_output_tokens) for own in sequences.values()]
    assert min(used) > 400
    assert max(used) - min(used) <= 4 * 34  # of the sequences that run
