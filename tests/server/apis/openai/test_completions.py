import msgspec
import pytest

from core.contract.messages import SampledLogprob
from server.apis.openai.completions import CompletionRenderer
from tests.support.each import each
from tests.support.engines import last, out


@pytest.fixture
def make(envelope):
    def make(requests, *, n=1, candidates=None, **wanted):
        common, options = envelope(requests, num_choices=candidates or n, **wanted)
        return CompletionRenderer(common, num_best=n, **options)

    return make


@pytest.fixture
def scored(tokenizer):
    """Ids of a prompt and their log-probabilities."""

    def scored(text):
        ids = tokenizer.encode(text, add_special_tokens=False)
        first, *others = ids
        scores = [SampledLogprob(i, -2.0, ((3, -0.1), (4, -0.2))) for i in others]
        return ids, [SampledLogprob(first, None), *scores]

    return scored


@each("num_top", [None, 0, 2])
@each("echo", [False, True])
@each("return_token_ids", [False, True])
def test_the_stream_equals_the_whole_response(
    make, asked, generate, scored, split, stream, whole_of, num_top, echo, return_token_ids
):
    texts = ["the fox", "é🙂 x"]
    prompts, scores = zip(*map(scored, texts), strict=True)
    requests = asked(prompts, n=2)
    wanted = {
        "n": 2,
        "num_top": num_top,
        "echoes": texts if echo else None,
        "return_token_ids": return_token_ids,
        "include_usage": True,
    }
    outputs = [
        generate(
            f"id-{i}",
            f"🙂{i} é",
            logprobs=num_top is not None,
            prompt=scores[i // 2] if echo and num_top is not None else (),
            stop="!!" if i == 1 else None,
            finish_reason="length" if i == 2 else "stop",
        )
        for i in range(4)
    ]
    whole = msgspec.json.decode(make(requests, **wanted).whole([whole_of(o) for o in outputs]))
    *chunks, usage = stream(make(requests, **wanted), [split(o) for o in outputs])
    assert usage["choices"] == []
    assert usage["usage"] == whole["usage"]
    assert whole["usage"]["prompt_tokens"] == sum(map(len, prompts))  # both prompts once
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    for index, choice in enumerate(whole["choices"]):
        own = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert [c["finish_reason"] for c in own[:-1]] == [None] * (len(own) - 1)
        assert own[-1]["finish_reason"] == choice["finish_reason"]
        assert own[-1].get("stop_reason") == choice.get("stop_reason")
        assert "".join(c["text"] for c in own) == choice["text"]
        assert choice["text"] == (texts[index // 2] if echo else "") + f"🙂{index} é"
        if num_top is None:
            assert choice["logprobs"] is None
        else:
            for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
                streamed = [x for c in own for x in c["logprobs"][key]]
                assert streamed == choice["logprobs"][key], key
        assert [i for c in own for i in c.get("token_ids", [])] == choice.get("token_ids", [])
        assert own[0].get("prompt_token_ids") == choice.get("prompt_token_ids")
        assert {str(c.get("prompt_token_ids")) for c in own[1:]} <= {"None"}
        assert (choice.get("prompt_token_ids") == prompts[index // 2]) == return_token_ids


def test_token_ids_of_hidden_text_are_streamed(make, asked):
    renderer = make(asked(), return_token_ids=True)
    [chunk] = chunks(renderer.feed(0, out("id-0", token_ids=(7,))))
    assert chunk["choices"][0] == {
        "index": 0,
        "text": "",
        "logprobs": None,
        "finish_reason": None,
        "token_ids": [7],
        "prompt_token_ids": [1, 2, 3, 4, 5],
    }


def test_an_output_without_news_is_no_chunk(make, asked):
    renderer = make(asked())
    assert renderer.begin() == b""
    assert renderer.feed(0, out("id-0", token_ids=(7,))) == b""


def test_the_echo_is_sent_with_the_first_output_even_without_text(make, asked):
    renderer = make(asked(), echoes=["the prompt"])
    [chunk] = chunks(renderer.feed(0, out("id-0")))
    assert chunk["choices"][0]["text"] == "the prompt"
    [chunk] = chunks(renderer.feed(0, last("id-0", "!")))
    assert chunk["choices"][0]["text"] == "!"


def test_scoring_a_prompt_without_new_tokens(make, asked, scored):
    """Evaluation harnesses use echo with logprobs and max_tokens 0."""
    ids, scores = scored("é the fox")
    renderer = make(asked([ids]), num_top=1, echoes=["é the fox"])
    output = last("id-0", prompt_logprobs=tuple(scores), num_prompt_tokens=len(ids))
    whole = msgspec.json.decode(renderer.whole([output]))
    logprobs = whole["choices"][0]["logprobs"]
    assert {len(values) for values in logprobs.values()} == {len(ids)}
    assert logprobs["token_logprobs"] == [None] + [-2.0] * (len(ids) - 1)
    assert logprobs["top_logprobs"][0] is None
    for token, value, top in list(zip(*list(logprobs.values())[:3], strict=True))[1:]:
        assert top[token] == value
        assert len(top) == 2
    assert whole["usage"]["completion_tokens"] == 0


def test_offsets_count_code_points_from_the_start_of_the_text(
    make, asked, generate, scored, whole_of
):
    ids, scores = scored("the é fox")
    renderer = make(asked([ids]), num_top=0, echoes=["the é fox"])
    output = whole_of(generate("id-0", "é🙂 dog", prompt=scores))
    [choice] = msgspec.json.decode(renderer.whole([output]))["choices"]
    offsets, tokens = choice["logprobs"]["text_offset"], choice["logprobs"]["tokens"]
    assert offsets == sorted(offsets)
    assert offsets[0] == 0
    for token, offset in zip(tokens, offsets, strict=True):
        if "\\x" not in token:
            assert choice["text"][offset:].startswith(token)
    assert offsets[len(ids)] == len("the é fox")


def test_hidden_prompt_tokens_do_not_move_offsets(make, asked, tokenizer):
    ids = [tokenizer.eos_token_id, *tokenizer.encode("fox", add_special_tokens=False)]
    scores = [SampledLogprob(ids[0], None), *(SampledLogprob(i, -1.0) for i in ids[1:])]
    renderer = make(asked([ids]), num_top=0, echoes=["fox"])
    [choice] = msgspec.json.decode(renderer.whole([last("id-0", prompt_logprobs=tuple(scores))]))[
        "choices"
    ]
    assert choice["logprobs"]["text_offset"][:2] == [0, 0]


def test_best_of_returns_the_candidates_with_the_best_mean(make, asked):
    def candidate(i, *values):
        entries = tuple(SampledLogprob(5, value) for value in values)
        return last(f"id-{i}", str(i), logprobs=entries, num_output_tokens=9, num_prompt_tokens=3)

    renderer = make(asked(((1, 2, 3), (4, 5, 6)), n=3), n=2, candidates=3)
    outputs = [
        candidate(0, -3.0),
        candidate(1, -1.0, -1.0, -1.0, -1.0),  # the mean counts, not the sum
        candidate(2, -2.0),
        candidate(3, -1.0),
        candidate(4),  # no tokens to rank by
        candidate(5, -2.0),
    ]
    whole = msgspec.json.decode(renderer.whole(outputs))
    assert [choice["text"] for choice in whole["choices"]] == ["1", "2", "3", "5"]
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3]
    assert {str(choice["logprobs"]) for choice in whole["choices"]} == {"None"}
    assert whole["usage"]["completion_tokens"] == 54  # all candidates count
    assert whole["usage"]["prompt_tokens"] == 6


def test_without_best_of_the_order_is_as_generated(make, asked):
    outputs = [last(f"id-{i}", str(i), logprobs=(SampledLogprob(5, -9.0 + i),)) for i in range(3)]
    whole = msgspec.json.decode(make(asked(n=3), n=3).whole(outputs))
    assert [choice["text"] for choice in whole["choices"]] == ["0", "1", "2"]


def test_an_error_is_an_event_and_the_end_marker(make, asked):
    assert make(asked()).error("no").endswith(b"\n\ndata: [DONE]\n\n")


def chunks(data):
    return [msgspec.json.decode(event[6:]) for event in data.split(b"\n\n")[:-1]]
