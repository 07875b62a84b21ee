"""Async scheduling: steps are launched before the last one is collected, with the same outputs."""

from __future__ import annotations

import random

import pytest
import torch

from core.engine.engine import ENGINE_FAILED, LOGITS_NOT_FINITE, failed_with
from core.engine.failures import MAX_FAILED_STEPS
from tests.support.scripted import EOS, POISON, Answer, Rig

FAILED = failed_with(RuntimeError())


def async_rig(**limits) -> Rig:
    return Rig(async_scheduling=True, **limits)


def outputs_of(rig: Rig) -> dict[str, tuple]:
    """All outputs of each request, regardless of the step they come in."""
    return {
        name: (
            answer.text,
            answer.token_ids,
            answer.last.finish_reason,
            answer.last.stop_reason,
            answer.last.error,
            [e for o in answer.outputs for e in o.logprobs],
            [o.prompt_logprobs for o in answer.outputs if o.prompt_logprobs is not None],
            answer.last.num_output_tokens,
        )
        for name, answer in rig.run().items()
    }


# When steps are launched


def test_a_step_is_launched_before_the_last_one_is_collected():
    rig = async_rig()
    rig.add("r", b"abcdef", max_tokens=6)
    assert rig.step() == {}
    texts = [rig.step()["r"].text for _ in range(6)]
    assert texts == list("abcdef")
    assert rig.runner.most_in_flight == 2
    assert rig.runner.num_in_flight == 0
    assert not rig.engine.has_work


def test_without_async_scheduling_a_step_is_collected_at_once():
    rig = Rig()
    rig.add("r", b"abc", max_tokens=3)
    rig.run()
    assert rig.runner.most_in_flight == 1


def test_a_sequence_is_not_scheduled_after_its_last_token():
    rig = async_rig()
    rig.add("long", b"abcd", max_tokens=4)
    rig.add("one", b"x", max_tokens=1)
    rig.add("scored", prompt_logprobs=0, max_tokens=0)
    rig.run()
    assert [set(batch) for batch in rig.runner.batches] == [
        {"long", "one", "scored"},
        *[{"long"}] * 3,
    ]


@pytest.mark.parametrize(
    ("script", "fields"), [([*b"hi", EOS], {}), (b"hi.more", {"stop": (".",)})], ids=["eos", "stop"]
)
def test_an_end_seen_one_step_late_costs_one_row(script, fields):
    rig = async_rig()
    rig.add("r", script, **fields)
    answer = rig.run()["r"]
    assert (answer.text, answer.last.finish_reason) == ("hi", "stop")
    assert answer.last.num_output_tokens == 3
    assert len(rig.runner.batches) == 4
    assert rig.num_used_blocks == 0


def test_a_step_that_must_land_is_collected_before_the_next_launch():
    rig = async_rig()
    rig.runner.bound_ids.add("bound")
    rig.add("bound", b"xyz", max_tokens=3)
    rig.add("free", b"abcdef", max_tokens=6)
    for i in range(3):
        assert rig.step()["bound"].text == "xyz"[i]
        assert rig.runner.num_in_flight == 0
    assert rig.step() == {}
    assert rig.step()["free"].text == "d"
    assert rig.runner.num_in_flight == 1
    rig.run()


def test_chunked_prefill_is_scheduled_asynchronously_too():
    rig = async_rig(max_num_batched_tokens=8)
    rig.add("r", b"hi", prompt=range(20), max_tokens=2, prompt_logprobs=0)
    assert [list(rig.step()) for _ in range(5)] == [[], [], [], ["r"], ["r"]]


def test_a_new_request_joins_the_next_launch():
    rig = async_rig()
    rig.add("a", b"aaaaaa", max_tokens=6)
    rig.step()
    rig.step()
    rig.add("b", b"bb", max_tokens=2)
    rig.run()
    assert [set(batch) for batch in rig.runner.batches] == [
        *[{"a"}] * 2,
        *[{"a", "b"}] * 2,
        *[{"a"}] * 2,
    ]


# Same outputs


@pytest.mark.parametrize("seed", range(12))
def test_outputs_are_the_same_with_and_without_async_scheduling(seed):
    def batch(*, async_scheduling: bool) -> Rig:
        rng = random.Random(seed)
        rig = Rig(
            num_blocks=rng.choice([9, 12, 60]),
            max_num_seqs=rng.randrange(1, 6),
            max_num_batched_tokens=rng.randrange(6, 20),
            enable_prefix_caching=rng.random() < 0.7,
            async_scheduling=async_scheduling,
        )
        for i in range(14):
            name = str(i)
            length = rng.randrange(20)
            script = [*rng.choices(b"abc.", k=length), rng.choice([EOS, ord("z")])]
            rig.add(
                name,
                script if rng.random() < 0.6 else None,
                prompt=[rng.randrange(2) for _ in range(rng.randrange(1, 14))],
                max_tokens=rng.randrange(length + 1),
                stop=rng.choice([(), (".",), ("ab", "ca.")]),
                logprobs=rng.choice([None, 0]),
                prompt_logprobs=rng.choice([None, None, 0]),
                stream_interval=rng.randrange(3),
            )
            if rng.random() < 0.1:
                rig.runner.failed_rows.add(name)
            if rng.random() < 0.2:
                rig.runner.bound_ids.add(name)
        return rig

    assert outputs_of(batch(async_scheduling=True)) == outputs_of(batch(async_scheduling=False))


def test_preemption_with_a_token_in_flight():
    def texts(num_blocks: int, *, async_scheduling: bool) -> dict[str, tuple]:
        rig = Rig(num_blocks=num_blocks, async_scheduling=async_scheduling)
        for i in range(6):
            rig.add(str(i), prompt=[i // 2] * 7, max_tokens=20, logprobs=0)
        found = outputs_of(rig)
        assert (rig.engine.stats().num_preemptions > 0) == (num_blocks == 8)
        return found

    assert texts(8, async_scheduling=True) == texts(100, async_scheduling=False)


@pytest.mark.parametrize("prompt_length", [6, 7, 8, 9])
def test_later_requests_reuse_blocks_of_tokens_that_were_in_flight(prompt_length):
    rig = async_rig()
    rig.add("first", prompt=range(prompt_length), max_tokens=9, ignore_eos=True)
    answer = rig.run()["first"]
    rig.add("next", prompt=[*range(prompt_length), *answer.token_ids, 1], max_tokens=1)
    num_computed = prompt_length + len(answer.token_ids) - 1
    cached = rig.run()["next"].last.num_cached_tokens
    assert num_computed - cached <= 4  # the last full block may be missing, no other
    assert cached % 4 == 0


# Aborts


@pytest.mark.parametrize("num_steps", [1, 2, 3, 4])
def test_abort_with_a_step_in_flight(num_steps):
    rig = async_rig(max_num_batched_tokens=8)
    rig.add("r", prompt=range(20))
    for _ in range(num_steps):
        rig.step()
    rig.engine.abort("r")
    assert rig.num_used_blocks == 0
    rig.engine.check()
    assert rig.step() == {}
    assert not rig.engine.has_work
    assert rig.runner.num_in_flight == 0


def test_a_reused_id_gets_no_token_of_the_aborted_request():
    rig = async_rig()
    rig.add("r", b"first", max_tokens=5)
    rig.step()
    rig.step()
    rig.engine.abort("r")
    rig.add("r", b"other", max_tokens=5)
    assert rig.run()["r"].text == "other"


# Failures


def test_a_failed_launch_is_reported_after_the_step_in_flight():
    rig = async_rig(max_num_seqs=2)
    rig.add("ends", b"ab", max_tokens=2)
    rig.add("continues", b"cdef", max_tokens=4)
    rig.add("waits", b"w", max_tokens=1)
    rig.step()
    rig.step()
    rig.runner.guilty["continues"] = RuntimeError("secret")
    outputs = rig.engine.step()
    assert [(o.request_id, o.text, o.finish_reason, o.error) for o in outputs] == [
        ("ends", "b", "length", None),
        ("continues", "d", None, None),
        ("continues", "", None, FAILED),
    ]
    rig.engine.check()
    assert rig.run()["waits"].last.finish_reason == "length"
    assert rig.num_used_blocks == 0


def test_a_failed_collect_ends_only_the_requests_of_its_step():
    rig = async_rig()
    rig.add("old", prompt=range(10))
    rig.step()
    rig.add("new", b"new", prompt=range(10), max_tokens=3)
    rig.runner.guilty_late["old"] = RuntimeError("secret")
    rig.step()
    answer = rig.run()["new"]
    assert (answer.text, answer.last.finish_reason) == ("new", "length")
    assert rig.engine.stats().num_failed_steps == 1


def test_a_row_without_a_usable_token_in_flight_fails_only_its_request():
    rig = async_rig()
    rig.runner.failed_rows.add("bad")
    rig.add("bad", prompt=range(10))
    rig.add("good", b"good", max_tokens=4)
    answers = rig.run()
    assert answers["bad"].last.error == LOGITS_NOT_FINITE
    assert answers["good"].text == "good"
    rig.add("next", prompt=range(10), max_tokens=1)
    assert rig.run()["next"].last.num_cached_tokens == 0


def test_a_stale_row_of_nan_clears_only_its_own_blocks():
    rig = async_rig()
    rig.runner.failed_rows.add("bad")
    rig.add("bad", prompt=range(10))
    rig.step()
    rig.engine.abort("bad")
    rig.run()
    assert len(rig.runner.cleared) == 3
    assert not rig.runner.nan_blocks


def test_a_detokenizer_error_with_a_token_in_flight():
    rig = async_rig()
    rig.add("bad", [*b"a", POISON, *b"bc"], max_tokens=4)
    rig.add("good", b"good", max_tokens=4)
    answers = rig.run()
    assert answers["bad"].last.error == failed_with(ValueError())
    assert answers["good"].text == "good"
    assert rig.num_used_blocks == 0


def test_a_cuda_error_is_fatal_and_loses_no_output():
    rig = async_rig()
    rig.add("ends", b"x", max_tokens=1)
    rig.add("continues")
    rig.step()
    rig.runner.failures.append(torch.AcceleratorError("lost", 700))
    with pytest.raises(torch.AcceleratorError):
        rig.step()
    outputs = rig.engine.fail_all("over")
    assert {o.request_id: (o.finish_reason, o.error) for o in outputs if o.is_last} == {
        "ends": ("length", None),
        "continues": (None, "over"),
    }


def test_a_cuda_error_in_flight_is_fatal():
    rig = async_rig()
    rig.add("r")
    rig.step()
    rig.runner.late_failures.append(torch.AcceleratorError("lost", 700))
    with pytest.raises(torch.AcceleratorError):
        rig.step()
    assert [o.error for o in rig.engine.fail_all("over")] == ["over"]
    assert not rig.engine.has_work


def test_many_failed_steps_in_a_row_are_fatal():
    rig = async_rig()
    rig.runner.is_broken = True
    for i in range(MAX_FAILED_STEPS - 1):
        rig.add(str(i))
        assert rig.step()[str(i)].error == ENGINE_FAILED
    rig.add("19")
    with pytest.raises(RuntimeError, match="every step fails"):
        rig.step()


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_every_request_ends_with_exactly_one_last_output(seed, async_scheduling):
    """Random requests, aborts, failed launches, failed collects and failed rows in a tiny pool."""
    rng = random.Random(seed)
    rig = Rig(
        async_scheduling=async_scheduling,
        num_blocks=rng.randrange(9, 16),
        max_num_seqs=(max_num_seqs := rng.randrange(1, 6)),
        max_num_batched_tokens=max_num_seqs + rng.randrange(8),
        enable_prefix_caching=rng.random() < 0.7,
    )
    answers, aborted, added = {}, set(), {}
    while len(added) < 40 or rig.engine.has_work:
        if rng.random() < 0.4 and len(added) < 40:
            name = str(len(added))
            added[name] = rng.randrange(20)
            rig.add(
                name,
                prompt=[rng.randrange(2) for _ in range(rng.randrange(1, 16))],
                max_tokens=added[name],
                stream_interval=rng.randrange(4),
                prompt_logprobs=rng.choice([None, None, 0]),
            )
            if rng.random() < 0.1:
                rig.runner.failed_rows.add(name)
            if rng.random() < 0.2:
                rig.runner.bound_ids.add(name)
        if rng.random() < 0.05 and added:
            name = rng.choice(list(added))
            rig.engine.abort(name)
            if name not in answers or not answers[name].last.is_last:
                aborted.add(name)
        if rng.random() < 0.03:
            rig.runner.failures.append(RuntimeError("now and then"))
        if rng.random() < 0.03:
            rig.runner.late_failures.append(RuntimeError("now and then"))
        for output in rig.outputs() if async_scheduling else rig.step().values():
            assert output.request_id not in aborted
            answers.setdefault(output.request_id, Answer()).take(output)
    assert rig.num_used_blocks == 0
    assert rig.runner.num_in_flight == 0
    for name in added.keys() - aborted:
        last = answers[name].last
        assert last.is_last
        if last.error is None:
            assert last.finish_reason == "length"
            assert len(answers[name].token_ids) == last.num_output_tokens == added[name]
