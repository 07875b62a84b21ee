from __future__ import annotations

from array import array

import pytest

from core.contract.messages import PromptLogprobs, StepOutput
from core.contract.params import Thinking
from core.engine.generation import Generation
from core.sampling.result import SequenceResult
from tests.support.builders import make_sequence
from tests.support.each import each
from tests.support.scripted import EOS, MARK, Rig


def answer_to(script, **fields):
    """The answer of a single request."""
    rig = Rig()
    rig.add("r", script, **fields)
    answer = rig.run()["r"]
    assert rig.num_used_blocks == 0
    return answer


def ended(answer):
    last = answer.last
    return answer.text, last.finish_reason, last.stop_reason


# Ends


def test_max_tokens_ends_with_length():
    answer = answer_to(b"hello world", max_tokens=5)
    assert ended(answer) == ("hello", "length", None)
    assert answer.token_ids == list(b"hello")
    assert answer.last.num_output_tokens == 5
    assert answer.last.num_prompt_tokens == 3


THINKING = Thinking(
    begin="<t>", end="</t>", end_token_ids=tuple(b"</t>"), budget=2, is_separate=True
)


@pytest.mark.parametrize("interval", [0, 1, 3])
def test_thinking_is_reported_separately(interval):
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


def test_an_eos_token_ends_with_stop():
    assert ended(answer_to([*b"hi", EOS])) == ("hi", "stop", None)


@each("fields", [{}, {"skip_special_tokens": False}, {"stop": ("zz",)}])
@each("interval", [0, 1, 2])
def test_the_text_of_the_eos_token_is_never_output(fields, interval):
    answer = answer_to([*b"hi", EOS], stream_interval=interval, **fields)
    assert ended(answer) == ("hi", "stop", None)
    assert answer.token_ids[-1] == EOS
    assert answer.last.num_output_tokens == 3


@each("interval", [0, 1, 2])
@each("skips", [True, False])
@each(
    ("script", "shown", "included"),
    [
        ([*b"hi", MARK, *b"more"], "hi", "hi<mark>"),
        ([MARK, *b"more"], "", "<mark>"),
        ([*b"h<ma", MARK], "h<ma", "h<ma<mark>"),
        ([*b"\xe2\x82", MARK], "\N{REPLACEMENT CHARACTER}", "\N{REPLACEMENT CHARACTER}<mark>"),
        ([*b"<mark>", MARK], "", "<mark>"),
    ],
)
def test_a_special_token_is_a_stop_string(script, shown, included, skips, interval):
    fields = {"stop": ("zz", "<mark>"), "skip_special_tokens": skips, "stream_interval": interval}
    assert ended(answer_to(script, **fields)) == (shown, "stop", "<mark>")
    answer = answer_to(script, **fields, include_stop_str_in_output=True, logprobs=0)
    assert ended(answer) == (included, "stop", "<mark>")


@each(
    "fields", [{}, {"skip_special_tokens": False}, {"ignore_eos": True}, {"stop_token_ids": (EOS,)}]
)
def test_an_eos_token_that_is_a_stop_string(fields):
    script = [*b"hi", EOS, *b"more"]
    assert ended(answer_to(script, stop=("<eos>",), **fields)) == ("hi", "stop", "<eos>")
    answer = answer_to(script, stop=("<eos>",), include_stop_str_in_output=True, **fields)
    assert ended(answer) == ("hi<eos>", "stop", "<eos>")


def test_a_special_stop_string_has_to_wait_for_min_tokens():
    script = [*b"a", MARK, *b"bc", MARK]
    answer = answer_to(script, stop=("<mark>",), min_tokens=3, max_tokens=9)
    assert ended(answer) == ("abc", "stop", "<mark>")


def test_a_special_stop_string_is_not_looked_for_in_thinking():
    script = [*b"<t>a", MARK, *b"</t>b", MARK, *b"c"]
    answer = answer_to(script, stop=("<mark>",), max_tokens=30, thinking=THINKING)
    assert ended(answer) == ("b", "stop", "<mark>")
    assert "".join(output.thinking for output in answer.outputs) == "a"


def test_special_tokens_that_no_stop_string_names_stay_hidden():
    assert ended(answer_to([*b"hi", MARK, EOS], stop=("<mar", "zz"))) == ("hi", "stop", None)


def test_an_eos_token_as_the_first_token():
    answer = answer_to([EOS])
    assert ended(answer) == ("", "stop", None)
    assert len(answer.outputs) == 1


def test_an_eos_token_at_max_tokens_is_a_stop():
    assert ended(answer_to([*b"hi", EOS], max_tokens=3)) == ("hi", "stop", None)


def test_ignored_eos_tokens_do_not_end():
    answer = answer_to([*b"h", EOS, *b"i"], ignore_eos=True, max_tokens=3)
    assert ended(answer) == ("hi", "length", None)


def test_eos_tokens_before_min_tokens_do_not_end():
    answer = answer_to([EOS, *b"hi", EOS], min_tokens=2)
    assert ended(answer) == ("hi", "stop", None)


def test_a_stop_token_id_ends_with_stop():
    assert ended(answer_to(b"hello", stop_token_ids=(ord("l"),))) == ("he", "stop", ord("l"))


def test_a_stop_token_id_is_included_on_request():
    answer = answer_to(b"hello", stop_token_ids=(ord("l"),), include_stop_str_in_output=True)
    assert ended(answer) == ("hel", "stop", ord("l"))


def test_a_stop_string_matches_across_tokens():
    answer = answer_to(b"one\nUser: two", stop=("User:",), max_tokens=20)
    assert ended(answer) == ("one\n", "stop", "User:")
    assert answer.last.num_output_tokens == 9


def test_a_stop_string_is_included_on_request():
    answer = answer_to(b"one END", stop=("END",), include_stop_str_in_output=True)
    assert ended(answer) == ("one END", "stop", "END")


def test_a_partial_stop_string_is_released_if_it_does_not_match():
    assert ended(answer_to(b"EN EN.", stop=("END",), max_tokens=6)) == ("EN EN.", "length", None)
    assert ended(answer_to(b"an EN", stop=("END",), max_tokens=5)) == ("an EN", "length", None)
    assert ended(answer_to([*b"an EN", EOS], stop=("END",))) == ("an EN", "stop", None)


def test_text_that_may_become_a_stop_string_is_held_back():
    rig = Rig()
    rig.add("r", b"abENx", stop=("END",), max_tokens=5)
    texts = [rig.step().get("r", StepOutput(request_id="r")).text for _ in range(5)]
    assert texts == ["a", "b", "", "", "ENx"]


def test_stop_strings_apply_after_min_tokens():
    assert ended(answer_to(b".a.b", stop=(".",), min_tokens=2)) == (".a", "stop", ".")


def test_an_incomplete_character_at_the_end_is_replaced():
    assert ended(answer_to("é".encode(), max_tokens=1)) == ("\ufffd", "length", None)


def test_a_stop_string_matches_in_the_flushed_text():
    answer = answer_to("é".encode(), max_tokens=1, stop=("\ufffd",))
    assert ended(answer) == ("", "stop", "\ufffd")


def test_characters_are_output_whole():
    text = "aé日🙂"
    answer = answer_to(text.encode(), max_tokens=len(text.encode()))
    assert answer.text == text
    assert not any("\ufffd" in output.text for output in answer.outputs)


def test_max_tokens_0_runs_no_step():
    rig = Rig()
    rig.add("r", max_tokens=0)
    assert rig.engine.has_work
    assert rig.runner.batches == []
    [output] = rig.step().values()
    assert (output.text, output.finish_reason, output.num_output_tokens) == ("", "length", 0)
    assert output.num_prompt_tokens == 3
    assert rig.runner.batches == []
    assert not rig.engine.has_work


def test_max_tokens_0_with_prompt_logprobs_scores_the_prompt():
    answer = answer_to(b"x", prompt=b"score", max_tokens=0, prompt_logprobs=0)
    assert ended(answer) == ("", "length", None)
    assert answer.token_ids == []
    scores = answer.last.prompt_logprobs
    assert [(s.token_id, s.logprob) for s in scores] == [
        (ord(letter), None if i == 0 else -float(i)) for i, letter in enumerate("score")
    ]


def test_prompt_logprobs_of_one_token():
    answer = answer_to(b"x", prompt=b"s", max_tokens=1, prompt_logprobs=0)
    assert [s.logprob for s in answer.outputs[0].prompt_logprobs] == [None]


def test_a_recomputed_chunk_repeats_no_prompt_logprobs():
    """After a preemption the prompt is computed again, and chunks may end elsewhere."""
    generation = Generation(make_sequence(b"abcdefgh", prompt_logprobs=0), Rig().tokenizer)
    for begin, end in [(0, 4), (4, 6), (0, 2), (2, 8)]:
        positions = range(begin + 1, min(end + 1, 8))  # of the tokens that follow each
        lines = array("d", [-float(p) for p in positions]).tobytes()
        scores = PromptLogprobs(tuple(b"abcdefgh"[p] for p in positions), lines)
        result = SequenceResult(None, scores)
        generation.advance(result, frozenset(), num_computed_tokens=end)
    generation.finish_reason = "length"
    found = generation.report().prompt_logprobs
    assert [(s.token_id, s.logprob) for s in found] == [
        (ord(letter), None if p == 0 else -float(p)) for p, letter in enumerate("abcdefgh")
    ]


def test_logprobs_are_output_with_their_text():
    rig = Rig()
    rig.add("r", [*"aé".encode(), EOS], logprobs=0)
    outputs = [output for _ in range(4) for output in rig.step().values()]
    released = [(o.text, [(e.token_id, e.text_offset) for e in o.logprobs]) for o in outputs]
    assert released == [
        ("a", [(ord("a"), 0)]),
        ("é", [(0xC3, 1), (0xA9, 1)]),
        ("", [(EOS, 2)]),
    ]


# Outputs


def test_the_first_token_is_output_at_once_then_every_interval():
    rig = Rig()
    rig.add("r", b"0123456789", max_tokens=9, stream_interval=3)
    outputs = [output.text if (output := rig.step().get("r")) else None for _ in range(9)]
    assert outputs == ["0", None, None, "123", None, None, "456", None, "78"]


def test_the_first_token_is_output_even_without_text():
    rig = Rig()
    rig.add("r", "é!".encode(), max_tokens=3)
    output = rig.step()["r"]
    assert (output.text, output.token_ids) == ("", (0xC3,))
    assert rig.step()["r"].text == "é"


def test_no_output_without_text_after_the_first():
    rig = Rig()
    rig.add("r", "aé".encode(), max_tokens=8)
    assert [bool(rig.step()) for _ in range(3)] == [True, False, True]


def test_stream_interval_0_outputs_only_the_end():
    answer = answer_to(b"hello", max_tokens=5, stream_interval=0)
    assert len(answer.outputs) == 1
    assert ended(answer) == ("hello", "length", None)
    assert answer.token_ids == list(b"hello")


@pytest.mark.parametrize("interval", [0, 1, 2, 3, 7, 100])
def test_every_interval_gives_the_same_text(interval):
    answer = answer_to([*b"hello you", EOS], max_tokens=20, stream_interval=interval)
    assert ended(answer) == ("hello you", "stop", None)
    assert answer.token_ids == [*b"hello you", EOS]
    assert all(not output.is_last for output in answer.outputs[:-1])


def test_chunked_prefill_outputs_nothing_before_its_last_chunk():
    rig = Rig(max_num_batched_tokens=8)
    rig.add("r", b"hi", prompt=range(20), max_tokens=2, prompt_logprobs=0)
    assert [list(rig.step()) for _ in range(4)] == [[], [], ["r"], ["r"]]


def test_each_request_has_its_own_detokenizer_primed_with_the_prompt():
    rig = Rig()
    rig.add("a", b"bcd", prompt="é".encode()[:1], max_tokens=3)
    rig.add("b", [0xA9, *b"!"], prompt="é".encode()[:1], max_tokens=2)
    assert rig.tokenizer.primed_with == [(0xC3,), (0xC3,)]
    answers = rig.run()
    assert answers["a"].text == "bcd"
    assert answers["b"].text == "é!"  # the prompt's half and the answer's half


def test_text_is_output_in_pieces_and_the_rest_is_flushed():
    answer = answer_to([*b"ok", *"🙂".encode()[:3]], max_tokens=5)
    assert [output.text for output in answer.outputs] == ["o", "k", "\ufffd"]


def test_the_first_token_is_output_when_prefill_ends():
    rig = Rig()
    rig.add("r", b"hi", prompt=range(50), stream_interval=100)
    output = rig.step()["r"]
    assert output.text == "h"
    assert not output.is_last
