from __future__ import annotations

import pytest

from core.kv.window_group import WindowSize
from tests.support.scripted import EOS, NUM_TOKEN_IDS, Rig


class NotedAhead:
    """Notes what is said of the step before."""

    def __init__(self) -> None:
        self.had_prompts: list[bool] = []

    def advance(self, *, is_idle: bool, had_prompts: bool) -> bool:
        assert not is_idle
        self.had_prompts.append(had_prompts)
        return False


# Batches


def test_a_request_in_a_batch_gets_the_same_text_as_alone():
    prompts = [[7] * 9, [7] * 9 + [8], [1, 2], [7] * 20, [3]]
    alone = []
    for prompt in prompts:
        rig = Rig()
        rig.add("r", prompt=prompt, max_tokens=12)
        alone.append(rig.run()["r"].text)
    rig = Rig(max_num_seqs=3, max_num_batched_tokens=5)
    for i, prompt in enumerate(prompts):
        rig.add(str(i), prompt=prompt, max_tokens=12)
    answers = rig.run()
    assert [answers[str(i)].text for i in range(5)] == alone
    assert rig.num_used_blocks == 0


def test_the_scheduler_learns_what_attention_of_prompts_cost():
    rig = Rig(max_step_seconds=0.1, keys_per_row=10)
    rig.add("r", prompt=[5] * 20, max_tokens=3)
    rig.run()
    step_time = rig.scheduler._step_time
    assert step_time is not None
    assert step_time._prefill.num_tokens == 20 + 20 * 20 / 2 / 10
    assert step_time._decode.num_tokens == 1


@pytest.mark.parametrize("enable_prefix_caching", [True, False])
def test_preemption_does_not_change_the_text(enable_prefix_caching):
    def texts(num_blocks):
        rig = Rig(num_blocks=num_blocks, enable_prefix_caching=enable_prefix_caching)
        for i in range(6):
            rig.add(str(i), prompt=[i // 2] * 7, max_tokens=20, logprobs=0, stream_interval=i % 3)
        answers = rig.run()
        assert all(len(a.token_ids) == 20 for a in answers.values())
        entries = {r: [e for o in a.outputs for e in o.logprobs] for r, a in answers.items()}
        return rig, {r: a.text for r, a in answers.items()}, entries

    roomy, expected, entries = texts(100)
    tight, found, found_entries = texts(8)
    assert roomy.engine.stats().num_preemptions == 0
    assert tight.engine.stats().num_preemptions > 0
    assert (found, found_entries) == (expected, entries)


def test_prompt_logprobs_survive_preemption_and_chunks():
    rig = Rig(num_blocks=6, max_num_batched_tokens=8)
    rig.add("a", prompt=[1] * 8, max_tokens=10)
    rig.add("b", prompt=range(8), max_tokens=10, prompt_logprobs=0, stream_interval=0)
    answers = rig.run()
    assert rig.engine.stats().num_preemptions > 0
    scores = answers["b"].last.prompt_logprobs
    assert [s.logprob for s in scores] == [None, *(-float(i) for i in range(1, 8))]


def test_cached_prompt_tokens_are_reported():
    rig = Rig()
    rig.add("a", prompt=range(10), max_tokens=1)
    rig.run()
    rig.add("b", prompt=range(10), max_tokens=1)
    assert rig.run()["b"].last.num_cached_tokens == 8


def test_different_salts_share_nothing():
    rig = Rig()
    rig.add("a", prompt=range(10), max_tokens=1, cache_salt="alice")
    rig.add("b", prompt=range(10), max_tokens=1, cache_salt="bob")
    assert {a.last.num_cached_tokens for a in rig.run().values()} == {0}


@pytest.mark.parametrize("prompt", [[1], [1] * 7, [1] * 8, range(20)])
def test_a_sequence_whose_mask_is_late_gets_its_tokens_later(prompt):
    def answers(num_late):
        rig = Rig(num_blocks=40, max_num_batched_tokens=8, windows=[WindowSize(24, 4, 12)])
        rig.runner.late_rows = {"late": num_late}
        rig.runner.bound_ids = {"late"}
        for request_id in ("late", "other"):
            rig.add(request_id, prompt=prompt, max_tokens=12, prompt_logprobs=0)
        found = rig.run()
        assert rig.num_used_blocks == 0
        scores = [[s.logprob for s in a.outputs[0].prompt_logprobs] for a in found.values()]
        return {r: a.text for r, a in found.items()}, scores, rig.engine.stats().num_steps

    *expected, num_steps = answers(0)
    *late, num_late_steps = answers(5)
    assert late == expected
    assert num_late_steps > num_steps


# Abort


@pytest.mark.parametrize("num_steps", [0, 1, 2, 3])
def test_abort_frees_the_blocks_at_once(num_steps):
    rig = Rig(max_num_batched_tokens=8)
    rig.add("r", prompt=range(20))
    for _ in range(num_steps):
        rig.step()
    assert (rig.num_used_blocks > 0) == (num_steps > 0)
    rig.engine.abort("r")
    assert rig.num_used_blocks == 0
    assert not rig.engine.has_work
    rig.engine.check()
    assert rig.step() == {}


def test_an_aborted_request_has_no_more_output():
    rig = Rig()
    rig.add("a", b"aaaa", max_tokens=4)
    rig.add("b", b"bbbb", max_tokens=4)
    rig.step()
    rig.engine.abort("a")
    assert rig.run()["b"].last.finish_reason == "length"
    rig.add("c", max_tokens=0)
    rig.engine.abort("c")
    assert rig.run() == {}


def test_aborting_an_unknown_id_does_nothing():
    rig = Rig()
    rig.engine.abort("unknown")
    rig.add("r", b"a", max_tokens=1)
    rig.run()
    rig.engine.abort("r")
    rig.engine.check()


def test_an_id_may_be_used_again_after_an_abort():
    rig = Rig()
    rig.add("r", b"first", max_tokens=5)
    rig.step()
    rig.engine.abort("r")
    rig.add("r", b"other", max_tokens=5)
    assert rig.run()["r"].text == "other"


def test_fail_all_ends_every_request_with_an_error():
    rig = Rig(max_num_seqs=1)
    rig.add("running")
    rig.step()
    rig.add("waiting")
    outputs = rig.engine.fail_all("closing")
    assert {o.request_id: (o.error, o.finish_reason) for o in outputs} == {
        "running": ("closing", None),
        "waiting": ("closing", None),
    }
    assert not rig.engine.has_work
    assert rig.num_used_blocks == 0
    assert rig.engine.fail_all("closing") == []
    rig.engine.check()


# Bounds


@pytest.mark.parametrize("bad", [-1, NUM_TOKEN_IDS, 1 << 40])
def test_an_unknown_token_id_ends_its_request_before_any_step(bad):
    rig = Rig()
    for i in range(10):
        rig.add(f"bad{i}", prompt=[1, bad, 2])
    rig.add("good", b"good", prompt=[1, 2], max_tokens=4)
    outputs = rig.step()
    for i in range(10):
        assert f"token id {bad}," in outputs[f"bad{i}"].error
        assert outputs[f"bad{i}"].is_invalid
    assert rig.run()["good"].text == "ood"
    assert all(batch.keys() == {"good"} for batch in rig.runner.batches)


@pytest.mark.parametrize("prompt", [[], [None], ["x"]])
def test_a_request_that_cannot_begin_ends_alone(prompt):
    rig = Rig()
    rig.add("good", b"good", prompt=[1, 2], max_tokens=4)
    rig.add("bad", prompt=prompt)
    output = rig.step()["bad"]
    assert output.error
    assert output.is_invalid == (not prompt)
    assert rig.run()["good"].text == "ood"


def test_a_second_request_of_one_id_fails_and_the_engine_goes_on():
    rig = Rig()
    rig.add("same", b"good", prompt=[1, 2], max_tokens=4)
    rig.add("same", prompt=[3])
    rig.engine.abort("other")
    assert any(o.error and not o.is_invalid for o in rig.outputs())
    rig.add("next", b"good", prompt=[1, 2], max_tokens=4)
    assert rig.run()["next"].text == "good"


# Counters


def test_counters():
    rig = Rig(num_blocks=20, max_num_seqs=1)
    assert rig.engine.stats().num_blocks == rig.engine.stats().num_free_blocks == 20
    rig.add("a", prompt=range(10), max_tokens=3)
    rig.add("b", prompt=range(10), max_tokens=2)
    assert rig.engine.stats().num_waiting == 2
    rig.step()
    stats = rig.engine.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_free_blocks) == (1, 1, 17)
    rig.run()
    stats = rig.engine.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_free_blocks) == (0, 0, 20)
    assert (stats.num_steps, stats.num_failed_steps) == (5, 0)
    assert stats.num_prompt_tokens == 20
    assert stats.num_cached_tokens == 8
    assert stats.num_output_tokens == 5


def test_requests_without_a_seed_get_different_repeatable_seeds():
    def seeds():
        rig = Rig()
        for i in range(3):
            rig.add(str(i))
        rig.add("own", seed=7)
        return [sequence.seed for sequence in rig.scheduler]

    assert seeds() == seeds()
    assert len(set(seeds())) == 4
    assert seeds()[3] == 7


# Adding requests


def test_a_request_that_ends_in_prefill_runs_no_other_step():
    rig = Rig()
    rig.add("one", b"x", max_tokens=1)
    rig.add("eos", [EOS])
    outputs = rig.step()
    assert outputs["one"].finish_reason == "length"
    assert outputs["eos"].finish_reason == "stop"
    assert not rig.engine.has_work
    assert len(rig.runner.batches) == 1


def test_requests_join_and_leave_between_steps():
    rig = Rig()
    rig.add("a", b"aaaaaa", max_tokens=6)
    rig.step()
    rig.add("b", b"bb", max_tokens=2)
    rig.step()
    rig.step()
    rig.add("c", b"cccc", max_tokens=4)
    rig.step()
    rig.engine.abort("a")
    rig.run()
    assert [set(batch) for batch in rig.runner.batches] == [
        {"a"},
        {"a", "b"},
        {"a", "b"},
        {"a", "c"},
        {"c"},
        {"c"},
        {"c"},
    ]


def test_add_runs_no_step():
    rig = Rig()
    for i in range(50):
        rig.add(str(i))
    assert rig.runner.batches == []
    assert rig.engine.stats().num_waiting == 50


def test_prompt_token_ids_are_used_unchanged():
    rig = Rig()
    rig.add("r", prompt=[EOS, 0, 255, EOS], max_tokens=1)
    [sequence] = rig.scheduler
    assert sequence.token_ids == [EOS, 0, 255, EOS]
    assert rig.run()["r"].last.num_prompt_tokens == 4


@pytest.mark.parametrize("max_step_seconds", [None, 0.1])
def test_measured_steps_decide_how_much_of_a_prompt_is_computed_beside_decodes(max_step_seconds):
    """A step takes 10 ms and 1 ms for each of its tokens."""
    rig = Rig(num_blocks=200, max_num_batched_tokens=256, max_step_seconds=max_step_seconds)
    steps = rig.runner.batches
    rig.engine.timer.clock = lambda: sum(10 + sum(step.values()) for step in steps) * 1_000_000
    rig.add("stream", prompt=[1, 2, 3, 4], max_tokens=100)
    for _ in range(3):
        rig.step()
    rig.add("long", prompt=[1] * 400, max_tokens=1)
    while "long" not in steps[-1] or sum(step.get("long", 0) for step in steps) < 400:
        rig.step()
    largest = max(sum(step.values()) for step in steps)
    assert largest in (range(80, 91) if max_step_seconds else range(250, 257))


def test_memory_ahead_knows_whether_the_step_had_prompts():
    rig, ahead = Rig(max_num_batched_tokens=8), NotedAhead()
    rig.engine._memory_ahead = ahead
    rig.add("r", prompt=[1] * 12, max_tokens=3)
    while rig.engine.has_work:
        rig.step()
        rig.engine.prepare(is_idle=False)
    assert ahead.had_prompts == [True, True, False, False]
