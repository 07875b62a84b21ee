"""POST /generate, and the behaviours of the ancestor that a client can see, one test each."""

import re
from typing import Any

import pytest

from compat_tests.support import sse
from compat_tests.support.api import (
    CHAT,
    COMPLETIONS,
    Api,
    chat_text_of,
    check_error,
    completion_text_of,
    finish_reasons,
    in_threads,
)
from compat_tests.support.faults import BREAK
from compat_tests.support.http import Clock
from compat_tests.support.waiting import eventually, in_tries

GENERATE = "/generate"
PROMPT = "Once upon a time"
STORY = "Tell me a story."


def generate(api: Api, prompt: str = PROMPT, **fields: Any) -> str:
    body = {"prompt": prompt, "max_new_tokens": 24, "temperature": 0} | fields
    answer = api.ok(GENERATE, body)
    assert set(answer) == {"text"}
    return answer["text"]


def generate_stream(api: Api, prompt: str = PROMPT, **fields: Any) -> str:
    body = {"prompt": prompt, "max_new_tokens": 24, "temperature": 0, "stream": True} | fields
    reply = api.post(GENERATE, body)
    assert reply.status == 200, reply.text
    assert reply.header("content-type") == "text/plain; charset=utf-8"
    assert reply.header("x-request-id")
    return reply.text


# The fields of /generate.


def test_generate_returns_prompt_and_completion(api: Api) -> None:
    expected = api.text(PROMPT, max_tokens=24)
    assert generate(api) == PROMPT + expected


def test_generate_streams_the_raw_text_of_the_completion(api: Api) -> None:
    text = generate_stream(api)
    assert text == api.text(PROMPT, max_tokens=24)
    assert "data:" not in text


def test_generate_streams_utf8_that_is_whole_at_every_piece(api: Api) -> None:
    body = {
        "prompt": STORY,
        "max_new_tokens": 80,
        "temperature": 2,
        "stop_on_eos": False,
        "stream": True,
    }
    with api.open(GENERATE, body) as (_, reply):
        for piece in reply.pieces():
            piece.decode("utf-8", "strict")


def test_generate_max_new_tokens(api: Api) -> None:
    longer = generate(api, max_new_tokens=12, stop_on_eos=False)
    shorter = generate(api, max_new_tokens=6, stop_on_eos=False)
    assert longer.startswith(shorter)
    assert longer != shorter


def test_generate_temperature_and_do_sample(api: Api) -> None:
    greedy = generate(api, stop_on_eos=False)
    hot = {"temperature": 2, "stop_on_eos": False}
    assert len({generate(api, **hot) for _ in range(4)}) > 1
    assert generate(api, do_sample=False, **hot) == greedy


def test_generate_top_k(api: Api) -> None:
    greedy = generate(api, stop_on_eos=False)
    assert generate(api, temperature=1.5, top_k=1, stop_on_eos=False) == greedy


def test_generate_top_p(api: Api) -> None:
    greedy = generate(api, stop_on_eos=False)
    assert generate(api, temperature=1.5, top_p=0, stop_on_eos=False) == greedy
    assert generate(api, temperature=1, top_p=1e-9, stop_on_eos=False) == greedy


def test_generate_stop_on_eos(api: Api, tokenizer) -> None:
    """A prompt after which the model ends at once, and may not."""
    ids = api.ending_prompt()
    prompt = tokenizer.decode(ids, skip_special_tokens=False)
    if api.tokenize(prompt) != ids:
        prompt = PROMPT  # the text of a chat does not read back as its tokens: take what comes
    stopped = generate(api, prompt, max_new_tokens=40, stop_on_eos=True)
    went_on = generate(api, prompt, max_new_tokens=40, stop_on_eos=False)
    assert went_on.startswith(stopped)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prompt", 5),
        ("prompt", None),
        ("max_new_tokens", 0),
        ("max_new_tokens", "5"),
        ("temperature", -1),
        ("temperature", 2.5),
        ("top_k", -2),
        ("top_p", 1.5),
        ("stop_on_eos", "yes"),
        ("do_sample", 1),
        ("stream", "no"),
    ],
)
def test_generate_refuses_by_name(api: Api, name: str, value: object) -> None:
    error = api.refused(GENERATE, {"prompt": "x", "max_new_tokens": 2} | {name: value}, name)
    assert error["param"] == name


def test_generate_refuses_what_does_not_fit(api: Api) -> None:
    error = api.refused(GENERATE, {"prompt": "word " * 5000})
    assert error["code"] == "context_length_exceeded"
    error = api.refused(GENERATE, {"prompt": "x", "max_new_tokens": 10**6, "stream": True})
    assert error["code"] == "context_length_exceeded"


# Behaviours kept.


def test_ancestor_one_manager_serves_all_routes(api: Api) -> None:
    """Made once per app: every route counts in the same engine."""
    api.wait_idle()
    before = api.server.stats()["num_output_tokens"]
    api.chat(max_tokens=3, ignore_eos=True)
    api.complete(PROMPT, max_tokens=3, ignore_eos=True)
    generate(api, max_new_tokens=3, stop_on_eos=False)
    api.stream_chat(max_tokens=3, ignore_eos=True)
    generate_stream(api, max_new_tokens=3, stop_on_eos=False)
    eventually(lambda: api.server.stats()["num_output_tokens"] == before + 15)


def test_ancestor_streaming_and_plain_answers_both_run_in_the_core(api: Api) -> None:
    """Non-streaming answers once ran beside the scheduler."""
    for path, body in (
        (CHAT, api.chat_body(max_tokens=900, ignore_eos=True)),
        (COMPLETIONS, api.completion_body("x", max_tokens=900, ignore_eos=True)),
        (GENERATE, {"prompt": "x", "max_new_tokens": 900, "stop_on_eos": False}),
    ):
        for stream in (True, False):
            api.wait_idle()
            with api.server.connect() as connection:
                connection.send("POST", path, body | {"stream": stream})
                eventually(lambda: api.server.stats()["num_running"] == 1)
    api.wait_idle()


@pytest.mark.parametrize("stream", [True, False])
def test_ancestor_an_empty_prompt_becomes_one_token(api: Api, stream: bool) -> None:
    if stream:
        chunks = api.stream_completion("", max_tokens=2, stream_options={"include_usage": True})
        usage = chunks[-1]["usage"]
        generate_stream(api, "")
    else:
        usage = api.complete("", max_tokens=2)["usage"]
        generate(api, "")
    assert usage["prompt_tokens"] == 1


def test_ancestor_the_detokenizer_is_primed_with_the_prompt(api: Api, tokenizer) -> None:
    """A character may begin in the prompt and end in the completion."""
    prompt = tokenizer.encode(PROMPT).ids
    ids = api.greedy_ids(prompt, 12)
    both = tokenizer.decode(prompt + ids)
    assert tokenizer.decode(prompt) + api.text(prompt, max_tokens=12, ignore_eos=True) == both
    fragments = tokenizer.encode("🪿", add_special_tokens=False).ids
    last = {str(fragments[-1]): 100}
    text = api.text([*prompt, *fragments[:-1]], max_tokens=1, logit_bias=last)
    assert "\ufffd" not in text


def test_ancestor_pieces_then_a_flushed_tail(api: Api) -> None:
    """Text that is held back, here as the start of a stop string, still comes at the end."""
    text = api.text(PROMPT, max_tokens=24, ignore_eos=True)
    fields = {"max_tokens": 24, "ignore_eos": True, "stop": text[-4:] + "☃"}
    chunks = api.stream_completion(PROMPT, **fields)
    assert completion_text_of(chunks) == text
    assert finish_reasons(chunks) == ["length"]


def test_ancestor_the_first_token_comes_as_soon_as_prefill_ends(guarded: Api) -> None:
    """Also where pieces hold several tokens: the first leaves alone and at once."""
    body = guarded.chat_body(STORY, stream=True, max_tokens=41, ignore_eos=True)

    def check() -> None:
        clock = Clock()
        with guarded.open(CHAT, body | {"return_token_ids": True}) as (_, reply):
            arrivals = [
                (clock.seconds, sse.payloads(event + b"\n\ndata: [DONE]\n\n")[0]["choices"][0])
                for event in sse.iter_events(reply.pieces())
                if event != sse.DONE
            ]
        sizes = [len(choice.get("token_ids") or ()) for _, choice in arrivals]
        sizes = [size for size in sizes if size]
        assert sizes[0] == 1
        assert sum(sizes) == 41
        assert max(sizes) >= 8
        first = next(at for at, choice in arrivals if choice["delta"].get("content"))
        assert first < arrivals[-1][0] / 2

    in_tries(check)


def test_ancestor_stream_interval_keeps_the_text(api: Api, guarded: Api) -> None:
    fields = {"max_tokens": 40, "ignore_eos": True}
    chunks = guarded.stream_chat(STORY, **fields)
    assert chat_text_of(chunks) == api.chat_text(STORY, **fields)
    assert len(chunks) < 16
    own = api.stream_chat(STORY, stream_interval=10, **fields)
    assert chat_text_of(own) == chat_text_of(chunks)
    assert len(own) < 12


def test_ancestor_a_request_finished_at_admission_needs_no_step(api: Api) -> None:
    api.wait_idle()
    before = api.server.stats()["num_steps"]
    body = api.complete(PROMPT, max_tokens=0)
    assert body["choices"][0]["finish_reason"] == "length"
    assert api.server.stats()["num_steps"] == before


def test_ancestor_requests_join_and_leave_between_steps(api: Api) -> None:
    """Short ones come and go while a long one runs, and change nothing in it."""
    fields = {"max_tokens": 900, "ignore_eos": True}
    expected = api.chat_text(STORY, **fields)
    with api.open(CHAT, api.chat_body(STORY, stream=True, **fields)) as (_, reply):
        events = sse.iter_events(reply.pieces())
        seen = [next(events), next(events)]
        for _ in range(3):
            assert api.chat("Hello!", max_tokens=4)["choices"]
        assert api.server.stats()["num_running"] == 1, "the long one is still running"
        seen += events
    chunks = [sse.payloads(e + b"\n\ndata: [DONE]\n\n")[0] for e in seen if e != sse.DONE]
    assert chat_text_of(chunks) == expected


def test_ancestor_a_wake_up_is_never_lost(api: Api) -> None:
    """Requests that arrive at every possible moment around the end of another."""
    body = api.completion_body("a", max_tokens=1)
    with api.server.connect(timeout=30) as connection:  # seconds that one answer may take
        for _ in range(100):
            assert connection.request("POST", COMPLETIONS, body).json["choices"]

    def many(_: int) -> None:
        with api.server.connect(timeout=30) as connection:
            for _ in range(20):
                assert connection.request("POST", COMPLETIONS, body).json["choices"]

    in_threads(many, range(8), width=8)


def test_ancestor_a_stream_is_registered_before_it_can_finish(api: Api) -> None:
    """The shortest streams there are, many times: none may miss its end."""

    def run(_: int) -> list[str]:
        return finish_reasons(api.stream_completion("a", max_tokens=1, ignore_eos=True))

    assert in_threads(run, range(60), width=12) == [["length"]] * 60
    for _ in range(10):
        assert finish_reasons(api.stream_completion("a", max_tokens=0)) == ["length"]


def test_ancestor_a_truncated_answer_does_not_say_stop(api: Api) -> None:
    for chunks in (
        api.stream_chat(STORY, max_tokens=3),
        api.stream_completion(PROMPT, max_tokens=3, ignore_eos=True),
    ):
        assert finish_reasons(chunks) == ["length"]


def test_ancestor_pre_tokenised_prompts_are_accepted(api: Api, tokenizer) -> None:
    ids = tokenizer.encode(PROMPT).ids
    assert api.text(ids, max_tokens=8) == api.text(PROMPT, max_tokens=8)


def test_ancestor_tokenizer_workers_leave_the_loop_free(api: Api) -> None:
    """While a megabyte is tokenized, other requests are answered."""
    huge = api.completion_body("It was the best of words. " * 60_000)
    before = api.server.stats()["event_loop"]["num_busy_stalls"]
    with api.server.connect() as connection:
        connection.send("POST", COMPLETIONS, huge)
        for _ in range(10):
            assert api.server.health() == (200, "ok")
        reply = connection.read_reply()
        assert reply.status == 400
        assert check_error(reply)["code"] == "context_length_exceeded"
    assert api.server.stats()["event_loop"]["num_busy_stalls"] == before


def test_ancestor_in_flight_limit(narrow: Api) -> None:
    """No more run together than --max-num-seqs; the next waits and is then served."""
    narrow.wait_idle()
    body = narrow.chat_body(max_tokens=700, ignore_eos=True)
    server = narrow.server
    with server.connect() as first, server.connect() as second:
        first.send("POST", CHAT, body)
        eventually(lambda: server.stats()["num_running"] == 1)
        second.send("POST", CHAT, body)
        eventually(lambda: server.stats()["num_waiting"] == 1)
        assert server.stats()["num_running"] == 1
        one, two = first.read_reply(), second.read_reply()
        assert one.status == two.status == 200
        assert one.json["choices"] == two.json["choices"]


def test_ancestor_n_beyond_the_limit_is_served_in_turns(narrow: Api) -> None:
    narrow.wait_idle()
    reply = narrow.post(CHAT, narrow.chat_body(max_tokens=4, ignore_eos=True, n=3))
    if reply.status == 200:
        assert len(reply.json["choices"]) == 3
    else:  # three places are more than one running and one waiting
        assert reply.status in {400, 429}
        check_error(reply)


def test_ancestor_runs_on_the_cpu(api: Api) -> None:
    assert re.search(r"\bcpu\b", api.server.stderr + api.server.stdout)


@pytest.mark.gpu
def test_ancestor_runs_on_cuda(start_server) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    api = Api(start_server("--device", "cuda").wait_ready())
    assert api.chat(max_tokens=8)["choices"]


def test_ancestor_a_dead_engine_is_not_healthy(start_server) -> None:
    """Steps that fail again and again end the engine: streams are told, the process exits."""
    server = start_server(command=("-m", "compat_tests.support.faulty_server")).wait_ready()
    api = Api(server)
    assert api.chat(max_tokens=2)["choices"]
    body = api.chat_body(max_tokens=4, seed=BREAK)
    with server.connect() as stream:
        long = api.chat_body(max_tokens=500, ignore_eos=True, stream=True)
        stream.send("POST", CHAT, long)
        head = stream.read_reply()
        assert head.status == 200
        for _ in range(8):
            reply = api.post(CHAT, body)
            assert reply.status == 503
            assert reply.header("x-should-retry") == "true"
            check_error(reply)
        assert b'"error":{' in head.body
    assert server.wait_exit(10) == 1
    [line] = [line for line in server.stderr.splitlines() if line.startswith("roseinfer: ")]
    assert line == "roseinfer: the engine died: asked to fail from now on"
