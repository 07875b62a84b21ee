from __future__ import annotations

import random

import pytest
import torch

from core.contract.messages import StepOutput
from core.contract.params import Thinking
from core.engine import REQUEST_FAILED
from core.failures import MAX_FAILED_STEPS
from tests.support.scripted import EOS, POISON, Answer, Rig


def answer_to(script, **fields):
    """The whole answer of one request alone."""
    rig = Rig()
    rig.add("r", script, **fields)
    answer = rig.run()["r"]
    assert rig.num_used_blocks == 0
    return answer


def ended(answer):
    last = answer.last
    return answer.text, last.finish_reason, last.stop_reason


# How it ends


def test_length():
    answer = answer_to(b"hello world", max_tokens=5)
    assert ended(answer) == ("hello", "length", None)
    assert answer.token_ids == list(b"hello")
    assert answer.last.num_output_tokens == 5
    assert answer.last.num_prompt_tokens == 3


THINKING = Thinking(
    begin="<t>", end="</t>", end_token_ids=tuple(b"</t>"), budget=2, is_separate=True
)


@pytest.mark.parametrize("interval", [0, 1, 3])
def test_thinking_is_reported_apart(interval):
    rig = Rig()
    script = [*b"<t>hm\n</t>\nyes", EOS]
    rig.add("r", script, thinking=THINKING, max_tokens=30, logprobs=0, stream_interval=interval)
    [sequence] = rig.scheduler
    must_end = []
    answer = rig.run(between=lambda _: must_end.append(sequence.must_end_thinking))["r"]
    assert "".join(output.thinking for output in answer.outputs) == "hm"
    assert ended(answer) == ("yes", "stop", None)
    assert answer.token_ids == script
    assert len([entry for output in answer.outputs for entry in output.logprobs]) == len(script)
    assert answer.last.num_thinking_tokens == len("<t>hm\n</t>")
    assert must_end == [*[False] * 4, *[True] * 5, *[False] * 6]


def test_end_token():
    assert ended(answer_to([*b"hi", EOS])) == ("hi", "stop", None)


@pytest.mark.parametrize("fields", [{}, {"skip_special_tokens": False}, {"stop": ("zz",)}])
@pytest.mark.parametrize("interval", [0, 1, 2])
def test_the_end_tokens_text_never_leaks(fields, interval):
    answer = answer_to([*b"hi", EOS], stream_interval=interval, **fields)
    assert ended(answer) == ("hi", "stop", None)
    assert answer.token_ids[-1] == EOS
    assert answer.last.num_output_tokens == 3


def test_an_end_token_at_once():
    answer = answer_to([EOS])
    assert ended(answer) == ("", "stop", None)
    assert len(answer.outputs) == 1


def test_an_end_token_in_the_last_place_is_a_stop():
    assert ended(answer_to([*b"hi", EOS], max_tokens=3)) == ("hi", "stop", None)


def test_ignored_end_tokens_do_not_end():
    answer = answer_to([*b"h", EOS, *b"i"], ignore_eos=True, max_tokens=3)
    assert ended(answer) == ("hi", "length", None)


def test_end_tokens_before_min_tokens_do_not_end():
    answer = answer_to([EOS, *b"hi", EOS], min_tokens=2)
    assert ended(answer) == ("hi", "stop", None)


def test_stop_token_id():
    assert ended(answer_to(b"hello", stop_token_ids=(ord("l"),))) == ("he", "stop", ord("l"))


def test_stop_token_id_shown_on_request():
    answer = answer_to(b"hello", stop_token_ids=(ord("l"),), include_stop_str_in_output=True)
    assert ended(answer) == ("hel", "stop", ord("l"))


def test_stop_string_across_tokens():
    answer = answer_to(b"one\nUser: two", stop=("User:",), max_tokens=20)
    assert ended(answer) == ("one\n", "stop", "User:")
    assert answer.last.num_output_tokens == 9


def test_stop_string_shown_on_request():
    answer = answer_to(b"one END", stop=("END",), include_stop_str_in_output=True)
    assert ended(answer) == ("one END", "stop", "END")


def test_the_beginning_of_a_stop_string_is_released_when_it_does_not_come():
    assert ended(answer_to(b"EN EN.", stop=("END",), max_tokens=6)) == ("EN EN.", "length", None)
    assert ended(answer_to(b"an EN", stop=("END",), max_tokens=5)) == ("an EN", "length", None)
    assert ended(answer_to([*b"an EN", EOS], stop=("END",))) == ("an EN", "stop", None)


def test_text_that_a_stop_string_may_take_back_is_never_sent():
    rig = Rig()
    rig.add("r", b"abENx", stop=("END",), max_tokens=5)
    texts = [rig.step().get("r", StepOutput(request_id="r")).text for _ in range(5)]
    assert texts == ["a", "b", "", "", "ENx"]


def test_stop_strings_wait_for_min_tokens():
    assert ended(answer_to(b".a.b", stop=(".",), min_tokens=2)) == (".a", "stop", ".")


def test_half_a_character_at_the_end_becomes_a_replacement():
    assert ended(answer_to("é".encode(), max_tokens=1)) == ("\ufffd", "length", None)


def test_a_stop_string_completed_by_the_flushed_tail_counts():
    answer = answer_to("é".encode(), max_tokens=1, stop=("\ufffd",))
    assert ended(answer) == ("", "stop", "\ufffd")


def test_characters_are_never_halved():
    text = "aé日🙂"
    answer = answer_to(text.encode(), max_tokens=len(text.encode()))
    assert answer.text == text
    assert not any("\ufffd" in output.text for output in answer.outputs)


def test_no_tokens_wanted_means_no_step():
    rig = Rig()
    rig.add("r", max_tokens=0)
    assert rig.engine.has_work
    assert rig.runner.plans == []
    [output] = rig.step().values()
    assert (output.text, output.finish_reason, output.num_output_tokens) == ("", "length", 0)
    assert output.num_prompt_tokens == 3
    assert rig.runner.plans == []
    assert not rig.engine.has_work


def test_no_tokens_wanted_but_the_prompt_scored():
    answer = answer_to(b"x", prompt=b"score", max_tokens=0, prompt_logprobs=0)
    assert ended(answer) == ("", "length", None)
    assert answer.token_ids == []
    scores = answer.last.prompt_logprobs
    assert [(s.token_id, s.logprob) for s in scores] == [
        (ord(letter), None if i == 0 else -float(i)) for i, letter in enumerate("score")
    ]


def test_a_prompt_of_one_token_scored():
    answer = answer_to(b"x", prompt=b"s", max_tokens=1, prompt_logprobs=0)
    assert [s.logprob for s in answer.outputs[0].prompt_logprobs] == [None]


def test_log_probabilities_come_with_their_text():
    rig = Rig()
    rig.add("r", [*"aé".encode(), EOS], logprobs=0)
    outputs = [output for _ in range(4) for output in rig.step().values()]
    released = [(o.text, [(e.token_id, e.text_offset) for e in o.logprobs]) for o in outputs]
    assert released == [
        ("a", [(ord("a"), 0)]),
        ("é", [(0xC3, 1), (0xA9, 1)]),
        ("", [(EOS, 2)]),
    ]


# When it is told


def test_the_first_token_leaves_at_once_then_every_interval():
    rig = Rig()
    rig.add("r", b"0123456789", max_tokens=9, stream_interval=3)
    told = [output.text if (output := rig.step().get("r")) else None for _ in range(9)]
    assert told == ["0", None, None, "123", None, None, "456", None, "78"]


def test_the_first_token_is_told_even_without_text():
    rig = Rig()
    rig.add("r", "é!".encode(), max_tokens=3)
    output = rig.step()["r"]
    assert (output.text, output.token_ids) == ("", (0xC3,))
    assert rig.step()["r"].text == "é"


def test_no_output_without_text_after_the_first():
    rig = Rig()
    rig.add("r", "aé".encode(), max_tokens=8)
    assert [bool(rig.step()) for _ in range(3)] == [True, False, True]


def test_interval_zero_tells_only_the_end():
    answer = answer_to(b"hello", max_tokens=5, stream_interval=0)
    assert len(answer.outputs) == 1
    assert ended(answer) == ("hello", "length", None)
    assert answer.token_ids == list(b"hello")


@pytest.mark.parametrize("interval", [0, 1, 2, 3, 7, 100])
def test_every_interval_tells_the_same_in_all(interval):
    answer = answer_to([*b"hello you", EOS], max_tokens=20, stream_interval=interval)
    assert ended(answer) == ("hello you", "stop", None)
    assert answer.token_ids == [*b"hello you", EOS]
    assert all(not output.is_last for output in answer.outputs[:-1])


def test_a_prompt_in_chunks_says_nothing_before_its_end():
    rig = Rig(max_num_batched_tokens=8)
    rig.add("r", b"hi", prompt=range(20), max_tokens=2, prompt_logprobs=0)
    assert [list(rig.step()) for _ in range(4)] == [[], [], ["r"], ["r"]]


# Company


def test_all_answers_of_a_crowd_are_what_each_is_alone():
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


@pytest.mark.parametrize("enable_prefix_caching", [True, False])
def test_preemption_leaves_the_text_as_it_is(enable_prefix_caching):
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


def test_prompt_scores_survive_preemption_and_chunks():
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


def test_salts_keep_tenants_apart():
    rig = Rig()
    rig.add("a", prompt=range(10), max_tokens=1, cache_salt="alice")
    rig.add("b", prompt=range(10), max_tokens=1, cache_salt="bob")
    assert {a.last.num_cached_tokens for a in rig.run().values()} == {0}


# Abort


@pytest.mark.parametrize("num_steps", [0, 1, 2, 3])
def test_abort_frees_the_blocks_within_the_step(num_steps):
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


def test_nothing_more_is_said_of_an_aborted_request():
    rig = Rig()
    rig.add("a", b"aaaa", max_tokens=4)
    rig.add("b", b"bbbb", max_tokens=4)
    rig.step()
    rig.engine.abort("a")
    assert rig.run()["b"].last.finish_reason == "length"
    rig.add("c", max_tokens=0)
    rig.engine.abort("c")
    assert rig.run() == {}


def test_aborting_the_unknown_is_harmless():
    rig = Rig()
    rig.engine.abort("nobody")
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


# Failures


def test_a_failing_step_fails_exactly_its_requests():
    rig = Rig(max_num_seqs=2)
    rig.add("a", b"aaaa", max_tokens=4)
    rig.add("b", b"bbbb", max_tokens=4)
    rig.add("c", b"cccc", max_tokens=4)
    rig.step()
    rig.runner.failures.append(RuntimeError("secret"))
    outputs = rig.step()
    assert {r: (o.error, o.finish_reason) for r, o in outputs.items()} == {
        "a": (REQUEST_FAILED, None),
        "b": (REQUEST_FAILED, None),
    }
    answers = rig.run()
    assert {r: ended(a) for r, a in answers.items()} == {"c": ("cccc", "length", None)}
    assert rig.num_used_blocks == 0


def test_a_failing_step_does_not_harm_a_sequence_that_sat_it_out():
    rig = Rig(max_num_seqs=3, max_num_batched_tokens=4)
    rig.add("wide", prompt=range(4), max_tokens=3)
    rig.step()
    rig.add("long", prompt=range(100, 110), max_tokens=2)
    rig.add("next", prompt=range(200, 210), max_tokens=2)
    rig.step()
    rig.runner.failures.append(RuntimeError("boom"))
    assert set(rig.step()) == {"wide", "long"}
    assert rig.run()["next"].last.finish_reason == "length"


def test_a_failing_step_drops_the_prefix_index():
    rig = Rig()
    rig.add("a", prompt=range(10), max_tokens=5)
    rig.runner.failures.append(RuntimeError("half-way"))
    rig.step()
    rig.add("b", prompt=range(10), max_tokens=1)
    last = rig.run()["b"].last
    assert (last.num_cached_tokens, last.error) == (0, None)


def test_running_out_of_device_memory_fails_only_the_step():
    rig = Rig()
    rig.add("a")
    rig.runner.failures.append(torch.OutOfMemoryError("CUDA out of memory"))
    assert rig.step()["a"].error == REQUEST_FAILED
    rig.add("b", b"b", max_tokens=1)
    assert rig.run()["b"].text == "b"


def test_a_lost_device_is_fatal_at_once():
    rig = Rig()
    rig.add("a")
    rig.runner.failures.append(torch.AcceleratorError("CUDA error: illegal memory access", 700))
    with pytest.raises(torch.AcceleratorError):
        rig.step()
    assert [output.request_id for output in rig.engine.fail_all("over")] == ["a"]


def test_many_failed_steps_in_a_row_are_fatal():
    rig = Rig()
    rig.runner.broken_ids.update(map(str, range(20)))
    for i in range(MAX_FAILED_STEPS - 1):
        rig.add(str(i))
        assert rig.step()[str(i)].error == REQUEST_FAILED
    rig.add("19")
    with pytest.raises(RuntimeError, match="breaks every step"):
        rig.step()
    assert rig.engine.stats().num_failed_steps == MAX_FAILED_STEPS
    assert [o.request_id for o in rig.engine.fail_all("over")] == ["19"]
    assert rig.num_used_blocks == 0


def test_a_good_step_makes_failures_be_forgiven():
    rig = Rig()
    rig.runner.broken_ids.add("bad")
    for i in range(3 * MAX_FAILED_STEPS):
        rig.add("bad")
        assert rig.step()["bad"].error
        rig.add(str(i), b"x", max_tokens=1)
        assert rig.step()[str(i)].text == "x"


def test_what_was_ready_is_not_lost_in_a_fatal_step():
    rig = Rig()
    rig.add("empty", max_tokens=0)
    rig.add("a")
    rig.runner.failures.append(torch.AcceleratorError("lost", 700))
    with pytest.raises(torch.AcceleratorError):
        rig.step()
    told = {o.request_id: (o.finish_reason, o.error) for o in rig.engine.fail_all("over")}
    assert told == {"empty": ("length", None), "a": (None, "over")}


def test_a_row_without_a_usable_token_fails_only_its_request():
    rig = Rig()
    rig.runner.failed_rows.add("bad")
    rig.add("bad", prompt=range(10))
    rig.add("good", b"good", max_tokens=4)
    outputs = rig.step()
    assert outputs["bad"].error
    assert outputs["good"].error is None
    assert rig.run()["good"].text == "ood"
    assert rig.engine.stats().num_failed_steps == 0


def test_what_a_failed_row_computed_is_not_shared():
    rig = Rig()
    rig.runner.failed_rows.add("bad")
    rig.add("bad", prompt=range(10))
    rig.step()
    rig.add("next", prompt=range(10), max_tokens=1)
    assert rig.run()["next"].last.num_cached_tokens == 0


def test_a_text_failure_fails_only_its_request():
    rig = Rig()
    rig.add("bad", [*b"a", POISON], max_tokens=4)
    rig.add("good", b"good", max_tokens=4)
    rig.step()
    outputs = rig.step()
    assert (outputs["bad"].error, outputs["bad"].finish_reason) == (REQUEST_FAILED, None)
    assert "bad" not in rig.run()
    assert rig.num_used_blocks == 0


def test_a_prompt_that_no_detokenizer_takes_fails_only_its_request():
    rig = Rig()
    rig.add("good", b"good", max_tokens=4)
    rig.add("bad", prompt=[POISON])
    outputs = rig.step()
    assert outputs["bad"].error == REQUEST_FAILED
    assert rig.run()["good"].last.finish_reason == "length"


def test_fail_all_ends_everything_with_an_error():
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


@pytest.mark.parametrize("seed", range(25))
def test_any_life_ends_with_one_last_word(seed):
    """Random arrivals, aborts, failing steps and failing rows over a tiny pool."""
    rng = random.Random(seed)
    rig = Rig(
        num_blocks=rng.randrange(9, 16),
        max_num_seqs=(max_num_seqs := rng.randrange(1, 6)),
        max_num_batched_tokens=max_num_seqs + rng.randrange(8),
        enable_prefix_caching=rng.random() < 0.7,
    )
    answers, aborted, added = {}, set(), {}
    while len(added) < 40 or rig.engine.has_work:
        if rng.random() < 0.4 and len(added) < 40:
            name = str(len(added))
            prompt = [rng.randrange(2) for _ in range(rng.randrange(1, 16))]
            added[name] = rng.randrange(20)
            rig.add(
                name,
                prompt=prompt,
                max_tokens=added[name],
                stream_interval=rng.randrange(4),
                prompt_logprobs=rng.choice([None, None, 0]),
            )
            if rng.random() < 0.1:
                rig.runner.failed_rows.add(name)
        if rng.random() < 0.05 and added:
            name = rng.choice(list(added))
            rig.engine.abort(name)
            if name not in answers or not answers[name].last.is_last:
                aborted.add(name)
        if rng.random() < 0.03:
            rig.runner.failures.append(RuntimeError("now and then"))
        for name, output in rig.step().items():
            assert name not in aborted
            answers.setdefault(name, Answer()).take(output)
    assert rig.num_used_blocks == 0
    for name in added.keys() - aborted:
        last = answers[name].last
        assert last.is_last
        if last.error is None:
            assert last.finish_reason == "length"
            assert len(answers[name].token_ids) == last.num_output_tokens == added[name]


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


def test_requests_without_a_seed_get_different_repeatable_ones():
    def seeds():
        rig = Rig()
        for i in range(3):
            rig.add(str(i))
        rig.add("own", seed=7)
        return [sequence.seed for sequence in rig.scheduler]

    assert seeds() == seeds()
    assert len(set(seeds())) == 4
    assert seeds()[3] == 7


# What the ancestor did, and is kept


def test_ancestor_detokenizer_is_each_requests_own_and_primed_with_the_prompt():
    rig = Rig()
    rig.add("a", b"bcd", prompt="é".encode()[:1], max_tokens=3)
    rig.add("b", [0xA9, *b"!"], prompt="é".encode()[:1], max_tokens=2)
    assert rig.tokenizer.primed_with == [(0xC3,), (0xC3,)]
    answers = rig.run()
    assert answers["a"].text == "bcd"
    assert answers["b"].text == "é!"  # the prompt's half and the answer's half


def test_ancestor_pieces_then_a_flushed_tail():
    answer = answer_to([*b"ok", *"🙂".encode()[:3]], max_tokens=5)
    assert [output.text for output in answer.outputs] == ["o", "k", "\ufffd"]


def test_ancestor_first_token_is_delivered_as_soon_as_prefill_ends():
    rig = Rig()
    rig.add("r", b"hi", prompt=range(50), stream_interval=100)
    output = rig.step()["r"]
    assert output.text == "h"
    assert not output.is_last


def test_ancestor_a_request_finished_at_admission_ends_without_another_step():
    rig = Rig()
    rig.add("one", b"x", max_tokens=1)
    rig.add("eos", [EOS])
    outputs = rig.step()
    assert outputs["one"].finish_reason == "length"
    assert outputs["eos"].finish_reason == "stop"
    assert not rig.engine.has_work
    assert len(rig.runner.plans) == 1


def test_ancestor_requests_join_and_leave_between_steps():
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
    assert [set(plan) for plan in rig.runner.plans] == [
        {"a"},
        {"a", "b"},
        {"a", "b"},
        {"a", "c"},
        {"c"},
        {"c"},
        {"c"},
    ]


def test_ancestor_add_request_waits_for_no_step():
    rig = Rig()
    for i in range(50):
        rig.add(str(i))
    assert rig.runner.plans == []
    assert rig.engine.stats().num_waiting == 50


def test_ancestor_pretokenized_prompts_are_taken_as_they_are():
    rig = Rig()
    rig.add("r", prompt=[EOS, 0, 255, EOS], max_tokens=1)
    [sequence] = rig.scheduler
    assert sequence.token_ids == [EOS, 0, 255, EOS]
    assert rig.run()["r"].last.num_prompt_tokens == 4
