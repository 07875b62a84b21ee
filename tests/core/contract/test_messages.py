from array import array

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.contract.messages import (
    Abort,
    Add,
    Command,
    EngineRequest,
    PromptLogprobs,
    SampledLogprob,
    StepOutput,
    Stop,
    merge,
    whole_prompt,
)
from tests.support.builders import make_request


def output(text="", **fields):
    return StepOutput(request_id="r", text=text, **fields)


def test_merge_joins_text_tokens_and_logprobs():
    one = output("a", token_ids=(1,), logprobs=(SampledLogprob(1, -1.0),))
    two = output("b", token_ids=(2, 3), logprobs=(SampledLogprob(2, -2.0),))
    both = merge(one, two)
    assert (both.text, both.token_ids) == ("ab", (1, 2, 3))
    assert both.logprobs == (SampledLogprob(1, -1.0), SampledLogprob(2, -2.0))


def test_merge_takes_the_counts_of_the_second():
    one = output(num_prompt_tokens=7, num_cached_tokens=4, num_output_tokens=1)
    two = output(num_prompt_tokens=7, num_cached_tokens=4, num_output_tokens=3)
    both = merge(one, two)
    assert (both.num_prompt_tokens, both.num_cached_tokens, both.num_output_tokens) == (7, 4, 3)


def test_merge_joins_thinking():
    one = output(thinking="I ", num_output_tokens=1, num_thinking_tokens=1)
    two = output("So", thinking="think.", num_output_tokens=4, num_thinking_tokens=3)
    both = merge(one, two)
    assert (both.thinking, both.text, both.num_thinking_tokens) == ("I think.", "So", 3)
    assert merge(both, output(error="broken")).num_thinking_tokens == 3


def test_merge_with_an_error_keeps_the_text():
    one = output("half", num_prompt_tokens=7, num_output_tokens=4, token_ids=(1,))
    both = merge(one, output(error="broken"))
    assert (both.text, both.error, both.finish_reason) == ("half", "broken", None)
    assert (both.num_prompt_tokens, both.num_output_tokens) == (7, 4)


def test_merge_keeps_the_end():
    both = merge(output("a"), output("b", finish_reason="stop", stop_reason="END"))
    assert (both.finish_reason, both.stop_reason) == ("stop", "END")
    assert both.is_last


def test_merge_keeps_the_prompt_logprobs_of_either():
    scores = (SampledLogprob(1, None),)
    assert merge(output(prompt_logprobs=scores), output()).prompt_logprobs == scores
    assert merge(output(), output(prompt_logprobs=scores)).prompt_logprobs == scores
    assert merge(output(), output()).prompt_logprobs is None
    assert merge(output(prompt_logprobs=()), output()).prompt_logprobs == ()


def test_merge_refuses_output_after_the_last():
    with pytest.raises(AssertionError):
        merge(output(finish_reason="stop"), output())
    with pytest.raises(AssertionError):
        merge(output(error="x"), output())


def test_merge_refuses_different_requests():
    with pytest.raises(AssertionError):
        merge(output(), StepOutput(request_id="other"))


@st.composite
def streams(draw):
    """All outputs of one request."""
    pieces = draw(st.lists(st.tuples(st.text(max_size=3), st.integers(1, 3)), min_size=1))
    made, num_tokens = [], 0
    for text, count in pieces:
        ids = tuple(range(num_tokens, num_tokens + count))
        num_tokens += count
        made.append(
            output(
                text,
                token_ids=ids,
                logprobs=tuple(SampledLogprob(i, -float(i)) for i in ids if text),
                num_prompt_tokens=5,
                num_output_tokens=num_tokens,
            )
        )
    end = draw(st.sampled_from([{"finish_reason": "stop"}, {"finish_reason": "length"}]))
    return [*made[:-1], msgspec.structs.replace(made[-1], **end)]


@given(streams(), st.data())
@settings(max_examples=50, deadline=None)
def test_merge_is_associative(outputs, data):
    whole = outputs[0]
    for following in outputs[1:]:
        whole = merge(whole, following)
    work = list(outputs)
    while len(work) > 1:
        i = data.draw(st.integers(0, len(work) - 2))
        work[i : i + 2] = [merge(work[i], work[i + 1])]
    assert work == [whole]
    assert whole.text == "".join(o.text for o in outputs)
    assert whole.token_ids == tuple(range(whole.num_output_tokens))
    assert whole.finish_reason == outputs[-1].finish_reason


def test_messages_are_frozen():
    for message in (
        output(),
        make_request(),
        Add(make_request()),
        Abort("r"),
        SampledLogprob(1, 0),
    ):
        field = message.__struct_fields__[0]
        with pytest.raises(AttributeError):
            setattr(message, field, None)


def test_messages_survive_serialization():
    request = make_request(
        range(5), stop=("a",), logit_bias={3: 1.5}, bad_words_ids=((1, 2),), seed=2**63 - 1
    )
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=EngineRequest) == request
    answer = output("é", logprobs=(SampledLogprob(1, None, ((1, -0.5),), 2),), stop_reason=3)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=StepOutput) == answer


def test_the_commands_are_add_abort_and_stop():
    assert set(Command.__args__) == {Add, Abort, Stop}


def scores_of(*lines, first=1):
    data = b"".join(array("d", line).tobytes() for line in lines)
    return PromptLogprobs(tuple(range(first, first + len(lines))), data)


def test_prompt_logprobs_are_read_as_objects():
    scores = scores_of([-1.0, -0.5, -2.0, 7.0, 8.0], [-3.0, -0.25, -1.0, 9.0, 1.0])
    second = SampledLogprob(2, -3.0, ((9, -0.25), (1, -1.0)))
    assert list(scores) == [SampledLogprob(1, -1.0, ((7, -0.5), (8, -2.0))), second]
    assert scores[-1] == scores.after(1)[0] == second
    assert len(scores.after(2)) == 0
    assert not PromptLogprobs()


def test_prompt_logprobs_are_joined_behind_the_first_token():
    parts = [scores_of([-1.0, -1.0, 5.0], first=1), scores_of([-2.0, -1.5, 6.0], first=2)]
    whole = whole_prompt(0, parts)
    assert list(whole) == [SampledLogprob(0, None), *parts[0], *parts[1]]
    assert list(whole_prompt(3, [])) == [SampledLogprob(3, None)]
    answer = output(prompt_logprobs=whole)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=StepOutput) == answer


def test_prompt_logprobs_take_no_memory_for_each_alternative():
    line = [-1.0] * 21 + [7.0] * 20
    whole = whole_prompt(0, [scores_of(*[line] * 1000)])
    assert len(whole.lines) == 1001 * 41 * 8
