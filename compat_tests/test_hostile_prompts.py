"""Prompts, templates and parameters at their edges: each request fails alone, or is answered."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from compat_tests.support.api import CHAT, COMPLETIONS, Api, Json, in_threads, user
from compat_tests.support.hostile import PARTS_ONLY, PASS, SYSTEM_ONLY, draw
from compat_tests.support.process import ServerProcess

pytestmark = pytest.mark.slow

BATCH = 10
"""Requests that are sent together."""


@pytest.fixture(scope="module")
def start_hostile(tmp_path_factory) -> Iterator[Callable[[str], Api]]:
    """Start a server with a template, which takes those of requests too."""
    servers: dict[str, ServerProcess] = {}

    def start(template: str) -> Api:
        if template not in servers:
            path: Path = tmp_path_factory.mktemp("template") / "chat.jinja"
            path.write_text(template)
            flags = ("--chat-template", str(path), "--trust-request-chat-template")
            servers[template] = ServerProcess(*flags, "--max-model-len", "256")
        return Api(servers[template].wait_ready())

    yield start
    for server in servers.values():
        server.close()


@pytest.fixture
def hostile(start_hostile) -> Api:
    return start_hostile(PASS)


EMPTY = user("")
RESPONSE = {"model": "roseinfer-tiny", "max_output_tokens": 1}


@pytest.mark.parametrize(
    ("path", "body", "names"),
    [
        (CHAT, {"messages": EMPTY}, "messages"),
        (CHAT, {"messages": user("x"), "chat_template": ""}, "messages"),
        (CHAT, {"messages": user([])}, "messages"),
        (CHAT, {"messages": user("x"), "chat_template": SYSTEM_ONLY}, "messages"),
        ("/v1/messages", {"messages": EMPTY, "max_tokens": 1}, "messages"),
        ("/v1/messages/count_tokens", {"messages": EMPTY}, "messages"),
        ("/v1/responses", RESPONSE | {"input": EMPTY}, "input"),
        ("/tokenize", {"messages": EMPTY}, "messages"),
        ("/api/chat", {"messages": EMPTY}, "messages"),
        ("/api/generate", {"prompt": "", "system": ""}, None),
        ("/api/generate", {"prompt": "x", "raw": True, "suffix": ""}, None),
    ],
)
def test_an_empty_prompt_is_refused_on_every_route(hostile: Api, path, body, names) -> None:
    reply = hostile.post(path, body)
    if names is None:  # Ollama loads the model by an empty prompt; a raw one is as it is
        assert reply.status == 200, reply.text
    else:
        assert reply.status == 400, reply.text
        assert "prompt is empty" in reply.text
        assert names in reply.text
    assert hostile.server.health() == (200, "ok")
    assert hostile.chat_text("Hello!", max_tokens=2) is not None


def test_an_empty_text_to_complete_is_one_token(hostile: Api) -> None:
    for prompt in ("", [""], None):
        assert hostile.complete(prompt, max_tokens=1)["usage"]["prompt_tokens"] == 1


PARTS = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo!"}]


def test_a_template_that_reads_parts_gets_the_text_on_every_route(start_hostile) -> None:
    api = start_hostile(PARTS_ONLY)
    expected = len(api.tokenize("Hello!"))
    one = {"max_tokens": 1}
    options = {"options": {"num_predict": 1}, "stream": False}
    counts = [
        api.ok(CHAT, {"messages": user("Hello!")} | one)["usage"]["prompt_tokens"],
        api.ok(CHAT, {"messages": user(PARTS)} | one)["usage"]["prompt_tokens"],
        api.ok("/v1/messages", {"messages": user("Hello!")} | one)["usage"]["input_tokens"],
        api.ok("/v1/messages/count_tokens", {"messages": user("Hello!")})["input_tokens"],
        api.ok("/v1/responses", RESPONSE | {"input": "Hello!"})["usage"]["input_tokens"],
        api.ok("/api/chat", {"messages": user("Hello!")} | options)["prompt_eval_count"],
        api.ok("/api/generate", {"prompt": "Hello!"} | options)["prompt_eval_count"],
        api.ok("/tokenize", {"messages": user(PARTS)})["count"],
    ]
    assert counts == [expected] * len(counts)
    given = {"messages": user("Hello!"), "chat_template": PARTS_ONLY}
    assert api.ok(CHAT, given | one)["usage"]["prompt_tokens"] == expected


STOP: Json = {"stop": ["<|im_start|>"], "logit_bias": {"1": 100}, "max_tokens": 5}


@pytest.mark.parametrize("skips", [True, False])
@pytest.mark.parametrize(
    ("path", "prompt"), [(CHAT, {"messages": user("x")}), (COMPLETIONS, {"prompt": "x"})]
)
def test_a_special_token_as_a_stop_string(api: Api, path, prompt, skips) -> None:
    body = prompt | STOP | {"skip_special_tokens": skips}
    for is_included in (False, True):
        body |= {"include_stop_str_in_output": is_included}
        [choice] = api.ok(path, body)["choices"]
        assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "<|im_start|>")
        shown = "<|im_start|>" if is_included else ""
        assert (choice["message"]["content"] if path == CHAT else choice["text"]) == shown
        pieces = [chunk["choices"][0] for chunk in api.stream(path, body) if chunk["choices"]]
        texts = [
            piece["delta"].get("content") if path == CHAT else piece["text"] for piece in pieces
        ]
        assert "".join(text or "" for text in texts) == shown
        assert pieces[-1]["finish_reason"] == "stop"


def test_a_special_stop_string_in_other_apis(api: Api) -> None:
    """The model ends its turn with this token by itself."""
    body = {"messages": user("Hello!"), "max_tokens": 200, "temperature": 0}
    ended = api.ok("/v1/messages", body)
    assert (ended["stop_reason"], ended["stop_sequence"]) == ("end_turn", None)
    stopped = api.ok("/v1/messages", body | {"stop_sequences": ["<|im_end|>"]})
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "<|im_end|>")
    assert stopped["content"] == ended["content"]
    options = {"temperature": 0, "num_predict": 200, "stop": ["<|im_end|>"]}
    line = api.ok("/api/chat", {"messages": user("Hello!"), "options": options, "stream": False})
    assert line["done_reason"] == "stop"
    assert line["message"]["content"] == ended["content"][0]["text"]


def fuzz(api: Api, num_requests: int, seed: int) -> Counter[int]:
    """Send random requests; returns how often each status came."""
    random, found = Random(seed), Counter[int]()
    for _ in range(num_requests // BATCH):
        batch = [draw(random) for _ in range(BATCH)]
        replies = in_threads(lambda request: api.post(*request), batch)
        for request, reply in zip(batch, replies, strict=True):
            assert reply.status == 200 or 400 <= reply.status < 500, (request, reply.text)
            assert b"The server failed" not in (reply.body or b""), (request, reply.text)
            found[reply.status] += 1
    return found


def check_well(api: Api) -> None:
    assert api.server.health() == (200, "ok")
    assert api.complete("Hello!", max_tokens=2)["choices"][0]["finish_reason"]
    api.wait_idle()
    stats = api.server.stats()
    assert stats["num_free_blocks"] == stats["num_blocks"]
    assert stats["num_failed_steps"] == 0


def test_hostile_requests_fail_alone(hostile: Api) -> None:
    found = fuzz(hostile, 300, seed=0)
    assert found[200] > 60, found
    assert found[400] > 60, found
    check_well(hostile)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("seed", "template"), [(1, PASS), (2, SYSTEM_ONLY), (3, PARTS_ONLY), (4, "")]
)
def test_ten_thousand_hostile_requests(start_hostile, seed, template) -> None:
    """2,500 with each template."""
    api = start_hostile(template)
    found = fuzz(api, 2500, seed)
    assert found[200] > 500, found
    check_well(api)
