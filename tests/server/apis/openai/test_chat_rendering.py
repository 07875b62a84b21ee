import msgspec
import pytest

from core.contract.messages import SampledLogprob
from server.apis.openai.chat import ChatRenderer
from server.rendering.base import ChatOptions
from tests.support.each import each


@pytest.fixture
def make(envelope):
    def make(requests, **wanted):
        common, options = envelope(requests, num_choices=len(requests), **wanted)
        return ChatRenderer(common, ChatOptions(**options))

    return make


@each("num_top", [None, 0, 2])
@each("return_token_ids", [False, True])
def test_the_stream_equals_the_whole_response(
    make, asked, generate, split, stream, whole_of, num_top, return_token_ids
):
    requests = asked(n=3)
    wanted = {"num_top": num_top, "return_token_ids": return_token_ids, "include_usage": True}
    ends = [{"finish_reason": "length"}, {"stop": "!!"}, {"stop": 7}]
    outputs = [
        generate(f"id-{i}", f"{i} é 🙂 x", logprobs=num_top is not None, **ends[i])
        for i in range(3)
    ]
    whole = msgspec.json.decode(make(requests, **wanted).whole([whole_of(o) for o in outputs]))
    *chunks, usage = stream(make(requests, **wanted), [split(o) for o in outputs])
    assert usage["choices"] == []
    assert usage["usage"] == whole["usage"]
    for key in ("id", "created", "model", "system_fingerprint"):
        assert {chunk[key] for chunk in [*chunks, usage]} == {whole[key]}
    for index, choice in enumerate(whole["choices"]):
        own = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        first, *middle, last = own
        assert first["delta"] == {"role": "assistant", "content": "", "refusal": None}
        assert last["delta"] == {}
        assert [c["finish_reason"] for c in own[:-1]] == [None] * (len(own) - 1)
        assert last["finish_reason"] == choice["finish_reason"]
        assert last.get("stop_reason") == choice.get("stop_reason")
        assert all(list(c["delta"]) == ["content"] for c in middle)
        content = "".join(c["delta"]["content"] for c in middle)
        assert content == choice["message"]["content"] == f"{index} é 🙂 x"
        if num_top is None:
            assert choice["logprobs"] is None
            assert {str(c["logprobs"]) for c in own} == {"None"}
        else:
            entries = [e for c in own if c["logprobs"] for e in c["logprobs"]["content"]]
            assert entries == choice["logprobs"]["content"]
            assert bytes(b for e in entries for b in e["bytes"]).decode() == content
            assert {len(e["top_logprobs"]) for e in entries} == {num_top}
        ids = [i for c in own for i in c.get("token_ids", [])]
        assert ids == choice.get("token_ids", [])
        assert bool(ids) == return_token_ids
    prompts = [c.get("prompt_token_ids") for c in chunks]
    assert prompts[0] == whole.get("prompt_token_ids")
    assert set(map(str, prompts[1:])) == {"None"}


def test_the_whole_response(make, asked, generate, whole_of):
    renderer = make(asked())
    [output] = [whole_of(generate())]
    assert msgspec.json.decode(renderer.whole([output])) == {
        "id": "id-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "org/m",
        "system_fingerprint": "fp_1",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": output.text, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": output.num_output_tokens,
            "total_tokens": 5 + output.num_output_tokens,
            "prompt_tokens_details": {"cached_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }


def test_choices_first_appear_in_order(make, asked, generate, stream):
    chunks = stream(make(asked(n=4)), [generate(f"id-{i}") for i in range(4)])
    indexes = [chunk["choices"][0]["index"] for chunk in chunks]
    assert list(dict.fromkeys(indexes)) == [0, 1, 2, 3]


def test_without_include_usage_no_chunk_has_usage(make, asked, generate, stream):
    chunks = stream(make(asked()), [generate()])
    assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)


def test_with_include_usage_it_is_null_until_the_last_chunk(make, asked, generate, stream):
    *chunks, last = stream(make(asked(), include_usage=True), [generate()])
    assert {str(chunk["usage"]) for chunk in chunks} == {"None"}
    assert last["usage"]["total_tokens"] > 0


def test_continuous_usage_grows(make, asked, generate, stream):
    renderer = make(asked(n=2), include_usage=True, continuous_usage=True)
    chunks = stream(renderer, [generate("id-0"), generate("id-1")])
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert chunks[-2]["usage"] == chunks[-1]["usage"]


def test_an_error_is_an_event_and_the_end_marker(make, asked):
    assert make(asked()).error("It failed.") == (
        b'data: {"error":{"message":"It failed.","type":"server_error","param":null,"code":null}}'
        b"\n\ndata: [DONE]\n\n"
    )


def test_prompt_logprobs_and_tokens_as_ids(make, asked, generate, whole_of):
    prompt = [SampledLogprob(1, None), SampledLogprob(2, -4.0, ((7, -0.5), (8, -1.0)))]
    renderer = make(asked(), num_top=1, num_prompt_top=1, tokens_as_ids=True)
    whole = msgspec.json.decode(renderer.whole([whole_of(generate(prompt=prompt))]))
    first, second = whole["prompt_logprobs"]
    assert first is None
    assert second["7"]["rank"] == 1
    assert (second["2"]["logprob"], second["2"]["rank"]) == (-4.0, None)
    assert second.keys() == {"7", "2"}
    for entry in whole["choices"][0]["logprobs"]["content"]:
        assert entry["token"].startswith("token_id:")
