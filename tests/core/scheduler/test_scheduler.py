from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from core.scheduler.demand import Demand
from core.state.sequence import Sequence, Status
from tests.support.builders import NoDemand, blocks_of
from tests.support.steps import Steps


def test_a_prefill_and_then_one_decode_per_step():
    steps = Steps()
    sequence = steps.add(range(10), "a", max_tokens=3)
    assert [steps.step() for _ in range(3)] == [{"a": 10}, {"a": 1}, {"a": 1}]
    assert sequence.status is Status.FINISHED
    assert steps.step() == {}
    assert steps.kv.num_free_blocks == steps.kv.num_blocks


def test_decodes_come_before_prefills():
    steps = Steps(max_num_seqs=4, max_num_batched_tokens=8)
    steps.add(range(20), "long")
    assert steps.step() == {"long": 8}
    assert steps.step() == {"long": 8}
    steps.add(range(100, 103), "short")
    assert steps.step() == {"short": 3, "long": 4}
    steps.add(range(200, 230), "longer")
    assert list(steps.step().items()) == [("long", 1), ("short", 1), ("longer", 6)]


def test_decodes_come_first_regardless_of_age():
    steps = Steps(max_scored_tokens=4)
    steps.add(range(12), "scored", prompt_logprobs=0)
    steps.add([50], "stream")
    assert list(steps.step()) == ["stream", "scored"]
    assert list(steps.step()) == ["stream", "scored"]


def test_a_decode_never_waits_for_a_long_prompt():
    steps = Steps(num_blocks=100, max_num_seqs=2, max_num_batched_tokens=4)
    steps.add([1], "stream", max_tokens=100)
    steps.step()
    steps.add(range(100, 190), "long", max_tokens=1)
    for _ in range(30):
        assert steps.step() == {"stream": 1, "long": 3}
    assert steps.step() == {"stream": 1}


def test_a_partial_prefill_continues_beside_many_decodes():
    steps = Steps(max_num_seqs=4, max_num_batched_tokens=4)
    for name in "abc":
        steps.add([ord(name)], name, max_tokens=50)
    steps.step()
    steps.add(range(100, 110), "long", max_tokens=1)
    for _ in range(10):
        assert steps.step() == {"a": 1, "b": 1, "c": 1, "long": 1}
    assert "long" not in steps.step()


def test_first_come_first_served():
    steps = Steps(max_num_seqs=2)
    for name in "abcd":
        steps.add([ord(name)] * 3, name, max_tokens=2)
    assert [list(steps.step()) for _ in range(4)] == [
        ["a", "b"],
        ["a", "b"],
        ["c", "d"],
        ["c", "d"],
    ]


def test_the_budget_splits_a_prompt_into_chunks():
    steps = Steps(max_num_seqs=4, max_num_batched_tokens=8)
    steps.add(range(20), "a")
    assert [steps.step() for _ in range(4)] == [{"a": 8}, {"a": 8}, {"a": 4}, {"a": 1}]


def test_prompts_take_the_rest_of_the_budget_in_turn():
    steps = Steps(max_num_seqs=4, max_num_batched_tokens=8)
    steps.add(range(6), "a")
    steps.add(range(100, 106), "b")
    steps.add(range(200, 206), "c")
    assert steps.step() == {"a": 6}  # the other two tokens would not fill a block
    assert steps.step() == {"a": 1, "b": 6}
    steps = Steps(max_num_seqs=4, max_num_batched_tokens=14)
    steps.add(range(6), "a")
    steps.add(range(100, 106), "b")
    steps.add(range(200, 210), "c")
    steps.add(range(300, 306), "d")
    assert steps.step() == {"a": 6, "b": 6}
    assert steps.step() == {"a": 1, "b": 1, "d": 6, "c": 4}


def test_max_num_seqs_limits_running_sequences():
    steps = Steps(max_num_seqs=3)
    for i in range(7):
        steps.add([i], str(i), max_tokens=3)
    seen = []
    while batch := steps.step():
        seen.append(len(batch))
        assert steps.scheduler.num_running <= 3
    assert seen == [3, 3, 3, 3, 3, 3, 1, 1, 1]


def test_the_last_admitted_is_preempted_first():
    steps = Steps(num_blocks=9, block_size=4)
    a, b, c = (steps.add([i] * 8, name, max_tokens=9) for i, name in enumerate("abc"))
    assert steps.step() == {"a": 8, "b": 8, "c": 8}
    for _ in range(4):
        assert steps.step() == {"a": 1, "b": 1, "c": 1}
    assert steps.step() == {"a": 1, "b": 1}
    assert (a.num_preemptions, b.num_preemptions, c.num_preemptions) == (0, 0, 1)
    assert c.status is Status.WAITING
    assert blocks_of(c) == []
    assert c.num_output_tokens == 5
    assert steps.scheduler.num_preemptions == 1


def test_a_preempted_sequence_is_first_in_the_queue():
    steps = Steps(num_blocks=9, block_size=4, max_num_seqs=3)
    _, _, c = (steps.add([i] * 8, name, max_tokens=8) for i, name in enumerate("abc"))
    steps.step()
    steps.add([9] * 8, "late", max_tokens=5)
    while c.num_preemptions == 0:
        assert "late" not in steps.step()
    assert [s.request_id for s in steps.scheduler] == ["a", "b", "c", "late"]
    while "c" not in (batch := steps.step()):
        assert set(batch) == {"a", "b"}
    assert set(batch) == {"c", "late"}


def test_the_last_admitted_sequence_preempts_itself():
    steps = Steps(num_blocks=8, block_size=4, max_scored_tokens=2)
    long = steps.add(range(20), "long", max_tokens=1, prompt_logprobs=0)
    short = steps.add(range(100, 104), "short", max_tokens=10)
    assert steps.step() == {"short": 4, "long": 2}
    for _ in range(8):
        assert steps.step() == {"short": 1, "long": 2}
    assert steps.step() == {"long": 2}  # the short one needs a block and was admitted last
    assert (long.num_preemptions, short.num_preemptions) == (0, 1)
    while steps.step():
        pass
    assert (long.status, short.status) == (Status.FINISHED, Status.FINISHED)


def test_later_sequences_do_not_preempt_a_long_prompt():
    steps = Steps(num_blocks=5, block_size=4, max_num_seqs=3, max_num_batched_tokens=5)
    steps.add([7], "stream", max_tokens=3)
    long = steps.add(range(100, 112), "long", max_tokens=1)
    late = steps.add([50, 51, 52], "late", max_tokens=8)
    batches = []
    while batch := steps.step():
        batches.append(batch)
    assert long.num_preemptions == 0
    assert late.status is Status.FINISHED


def test_recompute_after_preemption_reuses_cached_blocks():
    steps = Steps(num_blocks=7, block_size=4)
    steps.add([0] * 8, "a", max_tokens=8)
    b = steps.add([1] * 12, "b", max_tokens=8)
    steps.step()
    while b.num_preemptions == 0:
        steps.step()
    batch = {}
    while "b" not in batch:
        batch = steps.step()
    assert batch["b"] < b.num_tokens - 1


def test_prefixes_are_shared_by_sequences_admitted_in_one_step():
    steps = Steps()
    a = steps.add(range(10), "a")
    b = steps.add(range(10), "b")
    assert steps.step() == {"a": 10, "b": 2}
    assert (a.num_cached_tokens, b.num_cached_tokens) == (0, 8)
    assert blocks_of(a)[:2] == blocks_of(b)[:2]


def test_a_sequence_reuses_chunks_of_another_with_the_same_prompt():
    """Both need several chunks; the second reuses each chunk that the first computed."""
    steps = Steps(max_num_seqs=2, max_num_batched_tokens=8)
    steps.add(range(24), "a", max_tokens=3)
    assert steps.step() == {"a": 8}
    b = steps.add(range(24), "b", max_tokens=3)
    assert steps.step() == {"a": 8}
    assert b.num_cached_tokens == 8  # the budget was used up
    while b.status is not Status.FINISHED:
        steps.step()
    assert b.num_cached_tokens == 20


def test_tokens_reused_between_chunks_count_as_cached():
    steps = Steps(max_num_seqs=3, max_num_batched_tokens=6)
    steps.add([1, 2, 3, 4] * 4, "a", max_tokens=2)
    b = steps.add([1, 2, 3, 4] * 4, "b", max_tokens=2)
    computed = 0
    while batch := steps.step():
        computed += batch.get("b", 0)
    assert b.num_cached_tokens + computed == 16 + 1


def test_recomputed_tokens_do_not_count_as_cached():
    steps = Steps(num_blocks=9, block_size=4)
    sequences = [steps.add([i] * 8, str(i), max_tokens=9) for i in range(3)]
    while steps.step():
        pass
    assert steps.scheduler.num_preemptions > 0
    assert [s.num_cached_tokens for s in sequences] == [0, 0, 0]


def test_the_cached_count_survives_preemption():
    steps = Steps(num_blocks=8, block_size=4)
    steps.add([0] * 8, "a", max_tokens=12)
    b = steps.add([*[0] * 8, *[1] * 8], "b", max_tokens=13)
    counts = set()
    while steps.step():
        counts.add(b.num_cached_tokens)
    assert b.num_preemptions > 0
    assert counts == {8}


def test_prompt_logprobs_limit_chunks_and_reuse_nothing():
    steps = Steps(max_num_batched_tokens=64, max_scored_tokens=8)
    steps.add(range(20), "plain", max_tokens=1)
    scored = steps.add(range(20), "scored", max_tokens=1, prompt_logprobs=0)
    assert steps.step() == {"plain": 20, "scored": 8}
    assert steps.step() == {"scored": 8}
    assert steps.step() == {"scored": 4}
    assert scored.num_cached_tokens == 0


@pytest.mark.parametrize("num_steps", [0, 1, 2, 4])
def test_finish_removes_a_running_or_waiting_sequence(num_steps):
    steps = Steps(max_num_seqs=1, max_num_batched_tokens=4)
    running = steps.add(range(12), "running")
    waiting = steps.add(range(100, 112), "waiting")
    for _ in range(num_steps):
        steps.step()
    for sequence in (waiting, running):
        steps.scheduler.finish(sequence)
        assert sequence.status is Status.FINISHED
    assert list(steps.scheduler) == []
    assert steps.kv.num_free_blocks == steps.kv.num_blocks
    steps.scheduler.check()
    assert steps.step() == {}


def test_finish_may_be_called_twice():
    steps = Steps()
    sequence = steps.add([1], "a")
    steps.step()
    steps.scheduler.finish(sequence)
    steps.scheduler.finish(sequence)
    steps.scheduler.check()


PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=14)


class RandomTraffic(RuleBasedStateMachine):
    """Random requests, aborts and steps over tiny pools: none is lost, repeated or starved.

    ``live`` is in order of arrival.
    """

    @initialize(
        block_size=st.integers(1, 4),
        num_spare_blocks=st.integers(0, 6),
        max_num_seqs=st.integers(1, 5),
        num_spare_tokens=st.integers(0, 8),
        prefill_chunk_size=st.none() | st.integers(1, 12),
        max_scored_tokens=st.integers(1, 5),
        enable_prefix_caching=st.booleans(),
        demand=st.sampled_from([Demand, NoDemand]),
    )
    def begin(self, block_size, num_spare_blocks, max_num_seqs, num_spare_tokens, demand, **others):
        self.budget = max_num_seqs + num_spare_tokens
        self.caching = others["enable_prefix_caching"]
        self.chunk = others["prefill_chunk_size"] or self.budget
        self.max_num_seqs = max_num_seqs
        self.steps = Steps(
            num_blocks=-(-20 // block_size) + num_spare_blocks,  # the largest sequence fits alone
            block_size=block_size,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=self.budget,
            demand=demand(),
            **others,
        )
        self.scored_limit = others["max_scored_tokens"]
        self.live: list[Sequence] = []
        self.reached: dict[str, tuple[int, int]] = {}  # preemptions, tokens computed so far
        self.num_steps: dict[Sequence, int] = {}  # of running sequences, since admission
        self.passed: dict[Sequence, int] = {}  # tokens of those that passed a head
        self.expects_nothing = demand is NoDemand
        self.awaits_end = False
        self.num_steps_with_room = 0
        self.num_added = 0
        self.bound = 0

    @rule(
        prompt=PROMPTS,
        max_tokens=st.integers(1, 6),
        salt=st.sampled_from(["", "", "", "x"]),
        scored=st.sampled_from([None, None, None, 0]),
    )
    def arrive(self, prompt, max_tokens, salt, scored):
        name = f"{self.num_added:04}"
        self.num_added += 1
        self.live.append(
            self.steps.add(
                prompt, name, max_tokens=max_tokens, cache_salt=salt, prompt_logprobs=scored
            )
        )
        self.bound += len(prompt) + max_tokens

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def abort(self, data):
        sequence = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        self.awaits_end &= sequence.status is not Status.RUNNING
        self.steps.scheduler.finish(sequence)
        self.steps.scheduler.check()

    @rule(num_steps=st.integers(1, 4))
    def some_steps(self, num_steps):
        for _ in range(num_steps):
            self.one_step()

    def one_step(self):
        before = self.running()
        streams = [s for s in before if s.num_pending_tokens == 1]
        num_preemptions = self.steps.scheduler.num_preemptions
        has_room = self.has_room_for_head(before)
        head = next((s for s in self.live if s.status is Status.WAITING), None)
        scheduler_output = self.steps.schedule()
        self.awaits_end |= self.steps.scheduler.num_preemptions > num_preemptions
        self.num_steps_with_room = self.num_steps_with_room + 1 if has_room else 0
        if self.num_steps_with_room > self.steps.block_size and not self.awaits_end:
            assert head.status is Status.RUNNING
        scheduled = {item.sequence: item.num_tokens for item in scheduler_output.scheduled}
        assert len(scheduled) == len(scheduler_output.scheduled)
        assert scheduler_output.num_tokens == sum(scheduled.values()) <= self.budget
        assert bool(scheduled) == bool(self.live)
        running = self.running()
        for sequence, num_steps in self.num_steps.items():
            if sequence.status is Status.WAITING:
                assert num_steps >= self.steps.block_size, "was admitted too early"
        self.num_steps = {s: self.num_steps.get(s, 0) + 1 for s in running}
        self.check_order([s for s in before if s.status is Status.RUNNING], running)
        self.check_shares(streams, running, scheduled)
        self.check_reuse(scheduled)
        for sequence, num_tokens in scheduled.items():
            num_preemptions, num_computed = self.reached.get(sequence.request_id, (0, 0))
            if sequence.num_preemptions == num_preemptions:
                assert sequence.num_computed_tokens >= num_computed, "computed a token twice"
            self.reached[sequence.request_id] = (
                sequence.num_preemptions,
                sequence.num_computed_tokens + num_tokens,
            )
            if sequence.params.prompt_logprobs is not None:
                assert num_tokens <= self.scored_limit
                assert sequence.num_cached_tokens == 0
            assert sequence.num_cached_tokens < sequence.num_prompt_tokens
        self.steps.commit(scheduler_output)
        self.awaits_end &= all(s.status is not Status.FINISHED for s in self.live)
        self.live = [s for s in self.live if s.status is not Status.FINISHED]

    def running(self):
        """In order of admission."""
        return [*self.steps.scheduler][: self.steps.scheduler.num_running]

    def has_room_for_head(self, running):
        """Whether the head certainly fits, whatever the sequences will need."""
        size = self.steps.block_size
        head = next((s for s in self.live if s.status is Status.WAITING), None)
        if head is None or len(running) == self.max_num_seqs:
            return False
        num_blocks = -(-head.num_tokens // size) + 2 * len(running) + 1  # one each, and one spare
        if not self.expects_nothing:
            most = sum(s.num_prompt_tokens + s.params.max_tokens for s in [*running, head])
            num_blocks = max(num_blocks, -(-most // size) + 2 * len(running) + 2)
        return num_blocks <= self.steps.kv.num_free_blocks

    def check_order(self, stayed, running):
        """First come, first served, but for those that may pass a head within its bound."""
        waiting = [*self.steps.scheduler][len(running) :]
        assert waiting == [s for s in self.live if s.status is Status.WAITING], "out of turn"
        assert running[: len(stayed)] == stayed, "out of turn"
        admitted = running[len(stayed) :]
        if self.awaits_end and stayed:
            assert not admitted, "admitted after a preemption"
        if waiting:
            head = waiting[0]
            for sequence in admitted:
                if self.live.index(sequence) > self.live.index(head):
                    self.passed[head] = self.passed.get(head, 0) + sequence.num_tokens
            most = head.num_prompt_tokens + head.params.max_tokens
            assert self.passed.get(head, 0) <= most, "passed too often"

    def check_shares(self, streams, running, scheduled):
        """All decodes are scheduled, prefills keep the chunk size, and the oldest gets its half."""
        for sequence in streams:
            assert scheduled.get(sequence) == 1 or sequence.status is Status.WAITING
        longer = [s for s in running if s.num_pending_tokens > 1]
        if any(s.status is Status.RUNNING for s in streams):
            assert sum(scheduled.get(s, 0) for s in longer) <= self.chunk
        # a sequence that reused all but its last token in this step may have been the oldest
        single = [s for s in scheduled if s.num_pending_tokens == 1]
        if longer and set(single) <= set(streams):
            left = self.budget - len(single)
            half = -(-(min(left, self.chunk) if single else left) // 2)
            share = min(self.longest(longer[0]), half)
            if share < longer[0].num_pending_tokens:
                share = max(1, share - self.steps.block_size + 1)
            assert scheduled[longer[0]] >= share

    def longest(self, sequence):
        if sequence.params.prompt_logprobs is None:
            return sequence.num_pending_tokens
        return min(sequence.num_pending_tokens, self.scored_limit)

    def check_reuse(self, scheduled):
        """No two sequences compute the same block in a step, if they can share it."""
        if not self.caching:
            return
        size, seen = self.steps.block_size, set()
        for sequence, num_tokens in scheduled.items():
            start = sequence.num_computed_tokens
            if start % size or sequence.params.prompt_logprobs is not None:
                continue
            end = min(start + num_tokens, sequence.num_tokens - 1)  # the last token is never reused
            for last in range(start + size, end + 1, size):
                content = (sequence.request.cache_salt, *sequence.token_ids[:last])
                assert content not in seen
                seen.add(content)

    @invariant()
    def counts_agree(self):
        if hasattr(self, "steps"):
            scheduler = self.steps.scheduler
            scheduler.check()
            assert {s.request_id for s in scheduler} == {s.request_id for s in self.live}
            assert scheduler.num_running + scheduler.num_waiting == len(self.live)

    def teardown(self):
        """The oldest sequence progresses in every step, so all finish within ``bound`` steps."""
        for _ in range(self.bound if hasattr(self, "steps") else 0):
            if not self.live:
                break
            self.one_step()
        if hasattr(self, "steps"):
            assert not self.live, "starved"
            assert self.steps.kv.num_free_blocks == self.steps.kv.num_blocks


TestRandomTraffic = RandomTraffic.TestCase
TestRandomTraffic.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
