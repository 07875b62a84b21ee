"""Random requests, drawn from the server's own document: it obeys or refuses, and stays well.

Schemathesis, which is not installed with our tests, finds nothing either:
``st run URL/openapi.json --exclude-checks positive_data_acceptance`` against a server started with
``--max-model-len 256``. The check left out takes a refusal of two fields together for a fault.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from compat_tests.support import sse
from compat_tests.support.anthropic_events import events_of
from compat_tests.support.api import (
    CHAT,
    COMPLETIONS,
    LEAK,
    Api,
    Json,
    check_error,
    in_threads,
    user,
)
from compat_tests.support.described import Document, anything, numbers, texts
from compat_tests.support.http import Reply, encode, strict_json
from compat_tests.support.process import ServerProcess
from compat_tests.support.responses import RESPONSES
from compat_tests.support.responses import events_of as response_events

pytestmark = pytest.mark.slow

BATCH = 10
"""Requests that are sent together: the server decodes them in one batch, which saves time."""

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
OTHERS = [MESSAGES, MESSAGES, COUNT, "/api/chat", "/api/generate", "/api/show"]
"""Routes of other APIs than OpenAI's."""

PATHS = [
    *(CHAT, CHAT, COMPLETIONS, COMPLETIONS, RESPONSES, RESPONSES),
    *("/generate", "/tokenize", "/detokenize", *OTHERS),
]


def bounded(num_examples: int) -> settings:
    """The same examples every time."""
    return settings(
        max_examples=num_examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],  # no shrinking: each example is many requests, the report has them
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(scope="module")
def document(server: ServerProcess) -> Document:
    return Document(server)


# Requests that the document allows, or not.


class Request(NamedTuple):
    """A POST. ``body`` is what was encoded, unless the bytes were broken on purpose."""

    path: str
    data: bytes
    body: Any = ...


@st.composite
def bodies(draw: st.DrawFn, document: Document, path: str) -> Json:
    """A body that the document allows and that is answered soon, if it is not refused."""
    body: Json = draw(document.values(document.request_name(path)))
    few = st.integers(1, 4)
    match path:
        case "/v1/chat/completions":
            body |= {"max_completion_tokens": draw(few)}
        case "/v1/completions":
            body |= {"max_tokens": draw(st.integers(0, 4))}
            body |= {name: draw(st.integers(1, 2)) for name in ("best_of",) if body.get(name)}
        case "/generate":
            body |= {"max_new_tokens": draw(few)}
        case "/v1/messages":
            body |= {"max_tokens": draw(few)}
        case "/v1/responses":
            body |= {"max_output_tokens": draw(few), "model": document.model}
            for name in ("background", "conversation", "prompt", "previous_response_id"):
                if draw(st.integers(0, 7)):
                    body.pop(name, None)  # they are mostly refused
            if draw(st.integers(0, 3)):
                body["input"] = draw(texts)
            return body
        case "/api/chat" | "/api/generate":
            body["options"] = (body.get("options") or {}) | {"num_predict": draw(few)}
        case "/tokenize" if draw(st.integers(0, 3)):
            body["prompt"] = None if body.get("messages") else draw(texts)
        case "/detokenize" if draw(st.booleans()):
            body |= {"tokens": draw(st.lists(st.integers(0, 2047), max_size=6))}
    if body.get("n") is not None:
        body["n"] = draw(st.integers(1, 2))
    if body.get("min_tokens") is not None:
        body["min_tokens"] = draw(st.integers(0, 3))
    if body.get("model") is not None and draw(st.integers(0, 3)):
        del body["model"]
    if "stream_options" in body and draw(st.integers(0, 3)):
        body["stream"] = True
    return body


def bend(draw: st.DrawFn, body: Json) -> Any:
    """Change one thing in a body, so that the document may or may not allow it any more."""
    match draw(st.integers(0, 5)):
        case 0:
            return draw(anything)
        case 1 if body:
            del body[draw(st.sampled_from(sorted(body)))]
        case 2:
            body[draw(texts)] = draw(anything)
        case 3 if body:
            name = draw(st.sampled_from(sorted(body)))
            body[name] = [body[name]] if draw(st.booleans()) else {"text": body[name]}
        case 4 if body:
            number = draw(numbers.filter(lambda value: abs(value) < float("inf")))
            body[draw(st.sampled_from(sorted(body)))] = number
        case _ if body:
            body[draw(st.sampled_from(sorted(body)))] = draw(anything)
    return body


BROKEN: list[Callable[[bytes], bytes]] = [
    lambda _data: b"",
    lambda data: data[: len(data) // 2],
    lambda data: data + b"}",
    lambda data: data.replace(b"e", b"\xff", 1),
    lambda data: data.replace(b'"', b"'"),
    lambda data: b"\xef\xbb\xbf" + data,
    lambda data: data.decode().encode("utf-16"),
    lambda data: data.replace(b":", b":NaN,", 1),
    lambda data: data[:-1] + b',"temperature":1e999}',
    lambda data: data[:-1] + b',"seed":' + b"9" * 5000 + b"}",
    lambda data: data[:-1] + b',"user":"\\ud800"}',
    lambda data: data[:-1] + b',"user":"\\u0000"}',
    lambda data: data[:-1] + b',"model":null,"model":7}',
    lambda data: data[:-1] + b',"tools":' + b"[" * 5000 + b"]" * 5000 + b"}",
]


@st.composite
def requests(draw: st.DrawFn, document: Document) -> Request:
    path = draw(st.sampled_from(PATHS))
    body: Any = draw(bodies(document, path))
    kind = draw(st.integers(0, 9))
    if kind < 6:
        return Request(path, encode(body), body)
    if kind < 9:
        body = bend(draw, body)
        return Request(path, encode(body), body)
    return Request(path, draw(st.sampled_from(BROKEN))(encode(body)))


EVENTS = {
    "message_start": "MessageStart",
    "content_block_start": "BlockStart",
    "content_block_delta": "BlockDelta",
    "content_block_stop": "BlockStop",
    "message_delta": "MessageDelta",
    "message_stop": "MessageStop",
}
"""The types of the events of a stream of messages."""


def code_of(path: str, reply: Reply) -> str | None:
    """The code of an error, which has the shape of the route's API."""
    if path not in OTHERS:
        return str(check_error(reply)["code"])
    body = reply.json
    message = body["error"] if path.startswith("/api/") else body["error"]["message"]
    assert isinstance(message, str)
    assert message
    assert not LEAK.search(message), message
    if path.startswith("/api/"):
        assert set(body) == {"error"}
        return None
    return str(body["error"].get("details", {}).get("error_code"))


def check_answer(document: Document, request: Request, reply: Reply) -> None:
    """200 with what the document promises, or a well-formed 4xx, as the document has it."""
    assert reply.status == 200 or 400 <= reply.status < 500, (reply.status, reply.text)
    assert str(reply.status) in document.json["paths"][request.path]["post"]["responses"]
    is_allowed = None
    if request.body is not ...:
        fault = document.fault(document.request_name(request.path), request.body)
        is_allowed = fault is None
        assert is_allowed or reply.status != 200, f"the document forbids: {fault}"
    if reply.status != 200:
        code = code_of(request.path, reply)
        assert not (is_allowed and code == "invalid_type"), reply.text
        return
    name = document.response_name(request.path)
    match (reply.header("content-type") or "").partition(";")[0]:
        case "application/json":
            fault = document.fault(name, reply.json)
            assert fault is None, fault
        case "text/event-stream" if request.path == MESSAGES:
            for event in events_of(reply.body):
                fault = document.fault(EVENTS[event["type"]], event)
                assert fault is None, fault
        case "text/event-stream" if request.path == RESPONSES:
            for event in response_events(reply.body):
                fault = document.fault(document.tagged(event["type"]), event)
                assert fault is None, fault
        case "application/x-ndjson":
            for line in reply.body.splitlines():
                fault = document.fault(name, strict_json(line))
                assert fault is None, fault
        case "text/event-stream":
            chunks = sse.payloads(reply.body)
            assert chunks
            for chunk in chunks:
                fault = document.fault(name.replace("ChatCompletion", "ChatCompletionChunk"), chunk)
                assert fault is None, fault
        case media_type:
            assert (request.path, media_type) == ("/generate", "text/plain")
            assert isinstance(reply.text, str)


def test_random_requests_are_obeyed_or_refused(api: Api, document: Document) -> None:
    """2,000 of them: never a 5xx, and nothing of them is left in the engine."""
    num_answers: dict[int, int] = {}

    @bounded(2000 // BATCH)
    @given(st.lists(requests(document), min_size=BATCH, max_size=BATCH))
    def run(batch: list[Request]) -> None:
        replies = in_threads(lambda request: api.post(request.path, request.data), batch)
        for request, reply in zip(batch, replies, strict=True):
            note(f"POST {request.path} {request.data!r}")
            num_answers[reply.status] = num_answers.get(reply.status, 0) + 1
            check_answer(document, request, reply)

    run()
    assert sum(num_answers.values()) >= 2000
    assert num_answers[200] > 500, num_answers
    assert api.server.health() == (200, "ok")
    api.wait_idle()
    stats = api.server.stats()
    assert stats["num_free_blocks"] == stats["num_blocks"]
    assert stats["num_failed_steps"] == 0


def test_every_get_answers_as_described(api: Api, document: Document) -> None:
    for path, item in document.json["paths"].items():
        if "get" in item and "{" not in path.replace("{model_id}", ""):
            reply = api.server.get(path.replace("{model_id}", api.server.model))
            assert reply.status == 200
            if path == "/metrics":  # Prometheus' own text format
                assert reply.header("content-type").startswith("text/plain")
                continue
            fault = document.fault(document.response_name(path, "get"), reply.json)
            assert fault is None, fault


# One answer, however it is asked for.


def maybe(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Any few of these fields."""

    @st.composite
    def some(draw: st.DrawFn) -> Json:
        names = draw(st.lists(st.sampled_from(sorted(fields)), max_size=6, unique=True))
        return {name: draw(fields[name]) for name in names}

    return some()


token_ids = st.integers(0, 2047)
few_ids = st.lists(token_ids, min_size=1, max_size=8, unique=True)
prompts = st.sampled_from(
    (
        "Hello!",
        "Tell me a story about a dog who lost its way in the big city.",
        "What is 2 plus 3? Explain step by step, please, and then say it again in other words.",
        "Count to ten: 1, 2, 3,",
        "Write some emoji: 🌹🐕 and 日本語.",
    )
)
decisions = st.fixed_dictionaries({"temperature": st.just(0)}) | st.fixed_dictionaries(
    {"temperature": st.sampled_from([0.3, 1.0, 1.7]), "seed": st.integers(0, 2**63 - 1)}
)
mixes = maybe(
    n=st.integers(1, 2),
    top_k=st.integers(-1, 30),
    top_p=st.sampled_from([0.1, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.5]),
    presence_penalty=st.sampled_from([-2, -0.5, 1.5]),
    frequency_penalty=st.sampled_from([-1, 0.5, 2]),
    repetition_penalty=st.sampled_from([0.8, 1.1, 2.0]),
    logit_bias=st.dictionaries(token_ids.map(str), st.sampled_from([-100, -5, 5]), max_size=4),
    bad_words=st.lists(st.sampled_from(["the", "a", "story", " "]), max_size=2),
    allowed_token_ids=few_ids,
    min_tokens=st.integers(0, 4),
    ignore_eos=st.booleans(),
    stop=st.lists(st.sampled_from(["e", "on", "the", "\n", ". "]), min_size=1, max_size=3),
    stop_token_ids=few_ids,
    include_stop_str_in_output=st.booleans(),
    skip_special_tokens=st.booleans(),
    return_tokens_as_token_ids=st.booleans(),
)


@st.composite
def questions(draw: st.DrawFn) -> tuple[str, Json]:
    """A route and a body whose answer is fixed."""
    body = {"max_tokens": draw(st.integers(4, 12)), "return_token_ids": True}
    body |= draw(decisions) | draw(mixes)
    if set(body.get("allowed_token_ids", "-")) <= set(body.get("stop_token_ids", ())):
        body.pop("min_tokens", None)  # nothing would be allowed, which is refused
    if draw(st.booleans()):
        body |= {"messages": user(draw(prompts))}
        if draw(st.booleans()):
            body |= {"logprobs": True, "top_logprobs": draw(st.integers(0, 3))}
        return CHAT, body
    body |= {"prompt": draw(prompts) if draw(st.booleans()) else [draw(prompts), draw(prompts)]}
    if draw(st.booleans()):
        body |= {"logprobs": draw(st.integers(0, 3))}
    if draw(st.integers(0, 3)) == 0:
        body |= {"echo": True}
    return COMPLETIONS, body


class Answer(NamedTuple):
    """What a choice says; logprobs apart, because they may differ in the last digits."""

    text: str
    token_ids: list[int]
    finish_reason: str
    stop_reason: str | int | None
    tokens: list[str]
    logprobs: list[float]


def answers(path: str, pieces: list[Json]) -> list[Answer]:
    """The choices of a whole answer, or of the chunks of a streamed one."""
    indexes = sorted({choice["index"] for piece in pieces for choice in piece["choices"]})
    return [_answer(path, pieces, index) for index in indexes]


def _answer(path: str, pieces: list[Json], index: int) -> Answer:
    text, token_ids, tokens, logprobs, ends = "", [], [], [], []
    for piece in pieces:
        for choice in piece["choices"]:
            if choice["index"] != index:
                continue
            said = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
            text += said.get("content") or ""
            token_ids += choice.get("token_ids") or []
            values = choice.get("logprobs") or {}
            if path == CHAT:
                tokens += [entry["token"] for entry in values.get("content") or []]
                logprobs += [entry["logprob"] for entry in values.get("content") or []]
            else:
                tokens += values.get("tokens", [])
                logprobs += [value or 0.0 for value in values.get("token_logprobs", [])]
            if choice["finish_reason"] is not None:
                ends.append((choice["finish_reason"], choice.get("stop_reason")))
    ((finish_reason, stop_reason),) = ends
    return Answer(text, token_ids, finish_reason, stop_reason, tokens, logprobs)


def check_same(first: list[Answer], second: list[Answer]) -> None:
    assert [answer[:-1] for answer in first] == [answer[:-1] for answer in second]
    for one, other in zip(first, second, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=2e-3)


def test_streamed_is_not_streamed(api: Api) -> None:
    @bounded(25)
    @given(questions())
    def run(question: tuple[str, Json]) -> None:
        path, body = question
        whole = api.ok(path, body)
        chunks = api.stream(path, body | {"stream_options": {"include_usage": True}})
        check_same(answers(path, [whole]), answers(path, chunks))
        for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
            assert chunks[-1]["usage"][name] == whole["usage"][name]

    run()


def test_in_a_batch_is_alone(api: Api) -> None:
    @bounded(15)
    @given(st.lists(questions(), min_size=4, max_size=4))
    def run(batch: list[tuple[str, Json]]) -> None:
        alone = [answers(path, [api.ok(path, body)]) for path, body in batch]
        together = in_threads(lambda item: answers(item[0], [api.ok(*item)]), batch)
        for one, other in zip(alone, together, strict=True):
            check_same(one, other)

    run()


def test_a_hit_of_the_prefix_cache_is_a_miss(api: Api) -> None:
    num_cached = 0

    @bounded(20)
    @given(questions(), st.uuids())
    def run(question: tuple[str, Json], salt: object) -> None:
        nonlocal num_cached
        path, body = question
        body |= {"cache_salt": str(salt)}
        miss, hit = api.ok(path, body), api.ok(path, body)
        check_same(answers(path, [miss]), answers(path, [hit]))
        num_cached += hit["usage"]["prompt_tokens_details"]["cached_tokens"]

    run()
    assert num_cached > 0
