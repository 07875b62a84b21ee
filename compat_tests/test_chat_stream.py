"""C-013 to C-031: streamed chat, down to the bytes."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from compat_tests.support import sse
from compat_tests.support.api import (
    CHAT,
    COMPLETIONS,
    Api,
    chat_text_of,
    check_error,
    finish_reasons,
    usage_of,
    user,
)
from compat_tests.support.faults import FAIL_AT_ONCE, FAIL_MIDWAY, NO_NUMBERS, STALL
from compat_tests.support.http import Clock, strict_json
from compat_tests.support.process import ServerProcess
from compat_tests.support.waiting import in_tries

STORY = "Tell me a story."


def test_c013_headers(api: Api) -> None:
    reply = api.post(CHAT, api.chat_body(stream=True, max_tokens=2))
    assert reply.status == 200
    assert reply.header("content-type").startswith("text/event-stream")
    assert reply.header("content-encoding") is None
    assert "no-cache" in reply.header("cache-control")
    assert reply.header("x-accel-buffering") == "no"
    assert reply.header("transfer-encoding") == "chunked"
    assert reply.header("x-request-id")


def test_c013_never_compressed(api: Api) -> None:
    reply = api.post(
        CHAT,
        api.chat_body(stream=True, max_tokens=2),
        {"accept-encoding": "gzip, deflate, br, zstd"},
    )
    assert reply.header("content-encoding") is None
    assert sse.payloads(reply.body)


def test_c014_framing(api: Api) -> None:
    reply = api.post(CHAT, api.chat_body(STORY, stream=True, max_tokens=24))
    events = sse.split_events(reply.body)
    assert reply.body.endswith(b"\n\ndata: [DONE]\n\n")
    assert not reply.body.startswith(b"\xef\xbb\xbf")
    for event in events[:-1]:
        data = event.removeprefix(b"data: ").decode()
        compact = json.dumps(strict_json(data), ensure_ascii=False, separators=(",", ":"))
        assert data == compact


def test_c014_exact_bytes_of_the_first_and_last_chunks(api: Api) -> None:
    body = api.chat_body(STORY, stream=True, max_tokens=2, stream_options={"include_usage": True})
    events = sse.split_events(api.post(CHAT, body).body)
    head = (
        rb'data: \{"id":"chatcmpl-[^"]+","object":"chat\.completion\.chunk","created":\d+,'
        rb'"model":"[^"]+","system_fingerprint":(?:null|"fp_[0-9a-f]+"),"choices":'
    )
    no_logprobs = rb'(?:"logprobs":null,)?'
    role = rb'\[\{"index":0,"delta":\{"role":"assistant","content":""(?:,"refusal":null)?\},'
    assert re.fullmatch(
        head + role + no_logprobs + rb'"finish_reason":null\}\],"usage":null\}', events[0]
    ), events[0]
    finish = rb'\[\{"index":0,"delta":\{\},' + no_logprobs + rb'"finish_reason":"length"'
    assert re.fullmatch(
        head + finish + rb'(?:,"stop_reason":null)?\}\],"usage":null\}', events[-3]
    ), events[-3]
    usage = rb'"usage":\{"prompt_tokens":\d+,"completion_tokens":2,"total_tokens":\d+'
    assert re.match(head + rb"\[\]," + usage, events[-2]), events[-2]
    assert events[-1] == sse.DONE


def test_c014_no_key_is_null_that_should_be_absent(api: Api) -> None:
    for chunk in api.stream_chat(STORY, max_tokens=8):
        assert "usage" not in chunk
        delta = chunk["choices"][0]["delta"]
        assert set(delta) <= {"role", "content", "refusal"}
        assert "refusal" not in delta or "role" in delta
        assert delta.get("content", "") is not None


def test_c015_ids_are_constant(api: Api) -> None:
    chunks = api.stream_chat(STORY, max_tokens=16, n=2, stream_options={"include_usage": True})
    for name in ("id", "object", "created", "model", "system_fingerprint"):
        assert len({chunk[name] for chunk in chunks}) == 1, name
    assert chunks[0]["object"] == "chat.completion.chunk"
    assert chunks[0]["id"].startswith("chatcmpl-")
    assert chunks[0]["model"] == api.server.model


@pytest.mark.parametrize("n", [1, 3])
def test_c016_role_once_and_first(api: Api, n: int) -> None:
    chunks = api.stream_chat(STORY, max_tokens=8, n=n)
    for index in range(n):
        deltas = [
            choice["delta"]
            for chunk in chunks
            for choice in chunk["choices"]
            if choice["index"] == index
        ]
        assert deltas[0]["role"] == "assistant"
        assert all("role" not in delta for delta in deltas[1:])


def test_c017_include_usage_last_chunk(api: Api) -> None:
    chunks = api.stream_chat(STORY, max_tokens=8, stream_options={"include_usage": True})
    usage = usage_of(chunks)
    assert usage["completion_tokens"] == 8
    assert usage["total_tokens"] == usage["prompt_tokens"] + 8
    for chunk in chunks[:-1]:
        assert chunk["choices"]
        assert chunk["usage"] is None


def test_c017_continuous_usage_stats(api: Api) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = api.stream_chat(STORY, max_tokens=8, stream_options=options)
    final = usage_of(chunks)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 8
    assert len(set(counts)) > 2
    for chunk in chunks:
        usage = chunk["usage"]
        assert usage["prompt_tokens"] == final["prompt_tokens"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@pytest.mark.parametrize("options", [..., None, {}, {"include_usage": False}])
def test_c018_no_usage_unless_asked(api: Api, options: object) -> None:
    for chunk in api.stream_chat(max_tokens=4, stream_options=options):
        assert chunk.get("usage") is None
        assert chunk["choices"]


@pytest.mark.parametrize("n", [1, 3])
def test_c019_one_finish_reason_and_it_is_last(api: Api, n: int) -> None:
    chunks = api.stream_chat(STORY, max_tokens=8, n=n)
    for index in range(n):
        reasons = [
            choice["finish_reason"]
            for chunk in chunks
            for choice in chunk["choices"]
            if choice["index"] == index
        ]
        assert reasons[-1] == "length"
        assert all(reason is None for reason in reasons[:-1])


@pytest.mark.parametrize("prompt", [STORY, "Hello!", "Write some emoji."])
def test_c020_deltas_equal_the_whole_answer(api: Api, prompt: str) -> None:
    whole = api.chat(prompt, max_tokens=48)
    chunks = api.stream_chat(prompt, max_tokens=48, stream_options={"include_usage": True})
    choice = whole["choices"][0]
    assert chat_text_of(chunks) == choice["message"]["content"]
    assert finish_reasons(chunks) == [choice["finish_reason"]]
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert usage_of(chunks)[name] == whole["usage"][name]


def test_c021_n_3(api: Api) -> None:
    chunks = api.stream_chat(
        STORY,
        n=3,
        temperature=1,
        seed=3,
        max_tokens=12,
        ignore_eos=True,
        stream_options={"include_usage": True},
    )
    assert all(len(chunk["choices"]) == 1 for chunk in chunks[:-1])
    order = list(dict.fromkeys(chunk["choices"][0]["index"] for chunk in chunks[:-1]))
    assert order == [0, 1, 2]
    assert all(len(finish_reasons(chunks, index)) == 1 for index in range(3))
    assert usage_of(chunks)["completion_tokens"] == 36
    # the choices are generated together, not one after the other
    first_finish = next(i for i, chunk in enumerate(chunks) if chunk["choices"][0]["finish_reason"])
    assert {chunk["choices"][0]["index"] for chunk in chunks[:first_finish]} == {0, 1, 2}


# The helper raises on answers that end by length, so that these end by a stop string.
STOPS = ["a", "e", "i", "o", " "]


def test_c022_the_stream_helper_rebuilds_the_answer(
    sdk: openai.OpenAI, server: ServerProcess, api: Api
) -> None:
    text = api.chat_text("Hello!", max_tokens=24, ignore_eos=True)
    options = {
        "model": server.model,
        "messages": user("Hello!"),
        "temperature": 0,
        "stop": text[-3:],
        "extra_body": {"ignore_eos": True},
    }
    whole = sdk.chat.completions.create(**options)
    with sdk.chat.completions.stream(**options, stream_options={"include_usage": True}) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].finish_reason == whole.choices[0].finish_reason == "stop"
    assert final.choices[0].message.role == "assistant"
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert final.choices[0].message.content
    assert final.usage is not None
    assert whole.usage is not None
    assert final.usage.total_tokens == whole.usage.total_tokens


def test_c022_the_stream_helper_with_three_choices(
    sdk: openai.OpenAI, server: ServerProcess
) -> None:
    options = {"model": server.model, "messages": user("Hello!"), "seed": 1, "n": 3, "stop": STOPS}
    whole = sdk.chat.completions.create(**options)
    with sdk.chat.completions.stream(**options) as stream:
        final = stream.get_final_completion()
    assert [choice.message.content for choice in final.choices] == [
        choice.message.content for choice in whole.choices
    ]


def test_c023_the_body_ends_with_done(api: Api) -> None:
    with api.server.connect() as connection:
        reply = connection.request("POST", CHAT, api.chat_body(stream=True, max_tokens=8))
        seen = b""
        clock = Clock()
        for piece in reply.pieces():
            seen += piece
            if seen.endswith(b"data: [DONE]\n\n"):
                clock = Clock()
        assert seen.endswith(b"data: [DONE]\n\n")
        assert clock.seconds < 5, "the end waits for no timeout"
        again = connection.request("POST", CHAT, api.chat_body(max_tokens=2))
        assert again.status == 200
        assert again.json["choices"]


def test_c024_no_empty_deltas(api: Api) -> None:
    chunks = api.stream_chat(STORY, max_tokens=48)
    for chunk in chunks[1:-1]:
        assert chunk["choices"][0]["delta"].get("content"), chunk
    assert chunks[-1]["choices"][0]["delta"] == {}


def test_c025_tokens_are_flushed_one_at_a_time(api: Api) -> None:
    body = api.chat_body(STORY, stream=True, max_tokens=200, ignore_eos=True)

    def check() -> None:
        clock = Clock()
        with api.open(CHAT, body) as (_, reply):
            times = [
                clock.seconds
                for event in sse.iter_events(reply.pieces())
                if b'"content":' in event and b'"role"' not in event
            ]
        total = clock.seconds
        assert len(times) > 50
        assert times[0] < total / 4
        assert times[len(times) // 2] < total * 0.8

    in_tries(check)


def test_c026_no_chunk_splits_a_character(api: Api, tokenizer) -> None:
    """Random tokens that are all fragments of characters: the hardest text there is."""
    fragments = sorted(set(tokenizer.encode("🪿ᚠ𝔘☃", add_special_tokens=False).ids))
    for seed in range(5):
        fields = {
            "temperature": 1,
            "seed": seed,
            "max_tokens": 40,
            "ignore_eos": True,
            "allowed_token_ids": fragments,
        }
        whole = api.chat_text("x", **fields)
        reply = api.post(CHAT, api.chat_body("x", stream=True, **fields))
        reply.body.decode("utf-8", "strict")
        assert chat_text_of(sse.payloads(reply.body)) == whole


def test_c026_unlikely_text(api: Api) -> None:
    for seed in range(4):
        fields = {"temperature": 2, "seed": seed, "max_tokens": 40, "ignore_eos": True}
        whole = api.chat_text(STORY, **fields)
        assert chat_text_of(api.stream_chat(STORY, **fields)) == whole


@pytest.mark.parametrize("stream", [..., None, False])
def test_c027_stream_options_need_a_stream(api: Api, stream: object) -> None:
    for refused in (api.refused_chat, api.refused_completion):
        error = refused(stream_options={"include_usage": True}, stream=stream)
        assert error["param"] == "stream_options"


def test_c027_include_obfuscation_is_accepted_and_not_done(api: Api) -> None:
    plain = api.stream_chat(max_tokens=4)
    for value in (True, False):
        chunks = api.stream_chat(max_tokens=4, stream_options={"include_obfuscation": value})
        assert chat_text_of(chunks) == chat_text_of(plain)
        assert all("obfuscation" not in chunk for chunk in chunks)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"temperature": 3}, 400),
        ({"n": 0}, 400),
        ({"messages": []}, 400),
        ({"model": "nobody"}, 404),
        ({"messages": user("word " * 5000)}, 400),
        ({"max_tokens": 1_000_000}, 400),
        ({"stop": [5]}, 400),
        ({"logit_bias": {"99999999": 1}}, 400),
    ],
)
def test_c028_a_refused_stream_is_plain_json(
    api: Api, fields: dict[str, object], status: int
) -> None:
    reply = api.post(CHAT, api.chat_body() | {"stream": True} | fields)
    assert reply.status == status
    check_error(reply)


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream", "image/png", "*/*"])
def test_c029_accept_does_not_matter(api: Api, accept: str) -> None:
    reply = api.post(CHAT, api.chat_body(stream=True, max_tokens=2), {"accept": accept})
    assert reply.status == 200
    assert reply.header("content-type").startswith("text/event-stream")
    reply = api.post(CHAT, api.chat_body(max_tokens=2), {"accept": accept})
    assert reply.header("content-type") == "application/json"


def test_c030_silence_is_filled_with_comments(faulty: Api) -> None:
    body = faulty.chat_body(stream=True, max_tokens=8, ignore_eos=True, seed=STALL)
    reply = faulty.post(CHAT, body)
    events = sse.split_events(reply.body)
    assert any(event.startswith(b":") for event in events), events
    plain = faulty.chat_text(max_tokens=8, ignore_eos=True)
    assert chat_text_of(sse.payloads(reply.body)) == plain


def test_c030_a_comment_does_not_disturb_the_sdk(faulty_server: ServerProcess) -> None:
    with openai.OpenAI(
        base_url=f"{faulty_server.url}/v1",
        api_key="unused",
        max_retries=0,
        timeout=1.0,  # shorter than the silence: comments must reset it
        _strict_response_validation=True,
    ) as client:
        stream = client.chat.completions.create(
            model=faulty_server.model,
            messages=user("Hello!"),
            temperature=0,
            seed=STALL,
            max_tokens=8,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        chunks = list(stream)
    assert chunks[-1].choices[0].finish_reason == "length"


@pytest.mark.parametrize("seed", [FAIL_MIDWAY, NO_NUMBERS])
def test_c031_a_failure_in_mid_stream_raises_in_the_sdk(
    faulty_server: ServerProcess, seed: int
) -> None:
    with openai.OpenAI(
        base_url=f"{faulty_server.url}/v1",
        api_key="unused",
        max_retries=0,
        _strict_response_validation=True,
    ) as client:
        stream = client.chat.completions.create(
            model=faulty_server.model,
            messages=user("Hello!"),
            temperature=0,
            seed=seed,
            max_tokens=64,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        chunks: list[ChatCompletionChunk] = []
        with pytest.raises(openai.APIError) as caught:
            chunks.extend(stream)
        assert not isinstance(caught.value, openai.APIConnectionError)
        assert caught.value.type == "server_error"
        assert "Traceback" not in caught.value.message
        assert "asked to fail" not in caught.value.message
        assert all(choice.finish_reason is None for chunk in chunks for choice in chunk.choices)


@pytest.mark.parametrize(("path", "n"), [(CHAT, 1), (CHAT, 3), (COMPLETIONS, 1)])
def test_c031_the_error_event_and_done_end_the_stream(faulty: Api, path: str, n: int) -> None:
    make = faulty.chat_body if path == CHAT else faulty.completion_body
    body = make("Hello!", stream=True, max_tokens=64, ignore_eos=True, seed=FAIL_MIDWAY, n=n)
    reply = faulty.post(path, body)
    assert reply.status == 200
    chunks = sse.payloads(reply.body)
    error = chunks.pop()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert all("error" not in chunk for chunk in chunks)
    assert all(choice["finish_reason"] is None for c in chunks for choice in c["choices"])


def test_c031_a_failure_before_the_answer_is_a_500(faulty: Api) -> None:
    for seed in (FAIL_AT_ONCE, FAIL_MIDWAY, NO_NUMBERS):
        body = faulty.chat_body(seed=seed, max_tokens=64, ignore_eos=True)
        reply = faulty.post(CHAT, body)
        assert reply.status == 500
        assert check_error(reply)["type"] == "server_error"


def test_c031_guilty_requests_do_not_end_the_engine_or_change_others(faulty: Api) -> None:
    messages = [f"Say {i}." for i in range(4)]
    plain = [faulty.chat_text(text, max_tokens=24, ignore_eos=True) for text in messages]
    with ThreadPoolExecutor(5) as pool:
        streams = [
            pool.submit(faulty.chat_text, text, max_tokens=24, ignore_eos=True) for text in messages
        ]
        for _ in range(10):
            body = faulty.chat_body(max_tokens=24, ignore_eos=True, seed=FAIL_MIDWAY)
            assert faulty.post(CHAT, body).status == 500
        assert [stream.result() for stream in streams] == plain
    assert faulty.server.health() == (200, "ok")


def test_c031_the_server_goes_on_and_nothing_leaks(faulty: Api) -> None:
    before = faulty.chat_text(max_tokens=8)
    faulty.wait_idle()
    num_free = faulty.server.stats()["num_free_blocks"]
    for seed in (FAIL_AT_ONCE, FAIL_MIDWAY):
        faulty.post(CHAT, faulty.chat_body(seed=seed, max_tokens=64, ignore_eos=True))
        assert faulty.chat_text(max_tokens=8) == before
    faulty.wait_idle()
    assert faulty.server.stats()["num_free_blocks"] == num_free
    assert faulty.server.stats()["num_failed_steps"] >= 2
    assert faulty.server.health() == (200, "ok")
