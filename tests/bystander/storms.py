"""Storms of broken requests beside the bystanders."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from compat_tests.support.api import Json
from compat_tests.support.http import encode
from tests.bystander import fuzz
from tests.bystander.arena import CHAT, COMPLETIONS, Arena
from tests.bystander.stand import Seen, Stand

WIDTH = 16

SILENCE = 0.25
"""Seconds without an answer after which a request counts as unfinished; more on a busy machine."""


def storm(stand: Stand, number: int, seed: int) -> Arena:
    """Send broken requests beside the bystanders."""
    arena = Arena(stand.server, stand.size)
    host = f"{stand.server.host}:{stand.server.port}".encode()
    wait = SILENCE * stand.slack()
    before = stand.server.stats()["event_loop"]["num_busy_stalls"]
    with stand.beside() as seen:
        arena.together(
            lambda data: arena.raw(data, wait=wait),
            fuzz.requests(number, seed, host),
            width=WIDTH,
        )
    stalls = stand.server.stats()["event_loop"]["num_busy_stalls"] - before
    broken = [*arena.faults[:5], *broken_by(seen.last)]
    if stalls > (0 if stand.size == 1 else 1):
        broken.append(f"{stalls} busy stalls: {stand.server.stats()['event_loop']}")
    assert not broken, report(broken, arena, seen.last)
    return arena


def broken_by(seen: Seen) -> list[str]:
    """What the bystanders must not have seen."""
    broken = [f"a bystander was cut: {cut}" for cut in seen.cuts[:5]]
    if seen.num_changed:
        broken.append(f"the neighbour's text changed {seen.num_changed} times")
    if odd := {status for status, _ in seen.chats} - {200, 429}:
        broken.append(f"the tiny chat was answered {sorted(odd)}")
    if odd := {status for status, _ in seen.healths} - {200}:
        broken.append(f"/health was {sorted(odd)}")
    return broken


def report(broken: list[str], arena: Arena, seen: Seen) -> str:
    """All that is known of a storm that broke something."""
    lines = [
        *broken,
        f"{arena.num_sent} sent, answered {dict(arena.statuses)}",
        f"gap {seen.gap:.3f} s, tiny chat {seen.chat:.3f} s, /health {seen.health:.3f} s",
    ]
    return "\n".join(lines)


# Requests drawn by Hypothesis: the parts of HTTP and of JSON put together in odd ways.

tokens = st.sampled_from(["a", "", "\0", "é", "x" * 300, " ", "\t", ";", "chunked", "-1", "5", "*"])
names = st.sampled_from(
    [
        *("content-length", "transfer-encoding", "content-type", "host", "connection", "expect"),
        *("authorization", "origin", "x-request-id", "accept-encoding", "upgrade", "te", "a"),
    ]
)
lines = st.lists(st.tuples(names, tokens), max_size=5)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
fields = st.sampled_from(
    [
        *("messages", "prompt", "max_tokens", "temperature", "n", "stop", "tools", "tool_choice"),
        *("response_format", "logit_bias", "stream", "stream_options", "seed", "user", "metadata"),
        *("guided_json", "guided_regex", "allowed_token_ids", "bad_words", "chat_template_kwargs"),
        *("input", "instructions", "previous_response_id", "text", "reasoning", "include", "store"),
        *("truncation", "max_output_tokens", "system", "thinking", "stop_sequences"),
        *("output_config", "format", "options", "think", "keep_alive", "context", "raw", "suffix"),
        *("query", "documents", "text_1", "text_2", "truncate_prompt_tokens", "dimensions"),
    ]
)
paths = st.sampled_from(
    [
        *(CHAT, COMPLETIONS, "/tokenize", "/generate", "/%ff", "*", "/v1/responses"),
        *("/v1/messages", "/v1/messages/count_tokens", "/api/chat", "/api/generate", "/api/show"),
        *("/v1/embeddings", "/v1/rerank", "/v1/score", "/api/embed", "/api/embeddings"),
    ]
)
BODIES: dict[str, Json] = {
    "/v1/responses": {"model": "roseinfer-tiny", "input": "x", "max_output_tokens": 1},
    "/v1/messages": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "x"}]},
    "/api/chat": {
        "messages": [{"role": "user", "content": "x"}],
        "options": {"num_predict": 1},
    },
    "/api/generate": {"prompt": "x", "options": {"num_predict": 1}},
    "/api/show": {},
    "/v1/embeddings": {"input": "x"},
    "/v1/rerank": {"query": "x", "documents": ["x"]},
    "/v1/score": {"text_1": "x", "text_2": "x"},
    "/api/embed": {"input": "x"},
    "/api/embeddings": {"prompt": "x"},
}
"""By path; other paths get the fields of chat and completions."""
CHAT_BODY = {"messages": [{"role": "user", "content": "x"}], "prompt": "x", "max_tokens": 1}


@st.composite
def odd_requests(draw: st.DrawFn) -> bytes:
    path = draw(paths)
    body = BODIES.get(path, CHAT_BODY) | draw(st.dictionaries(fields, values, max_size=3))
    data = encode(body)
    method = draw(st.sampled_from(["POST", "POST", "POST", "GET", "PUT", "HEAD", "A"]))
    extra = "".join(f"{name}: {value}\r\n" for name, value in draw(lines))
    length = draw(st.sampled_from([len(data)] * 5 + [0, 1, len(data) - 1]))
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return (head + extra + f"content-length: {length}\r\n\r\n").encode() + data


def drawn(stand: Stand, number: int) -> None:
    """Send so many drawn requests, twenty at a time."""
    arena = Arena(stand.server, 1)
    wait = SILENCE * stand.slack()

    @settings(
        max_examples=number // 20,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(odd_requests(), min_size=20, max_size=20))
    def send(batch: list[bytes]) -> None:
        arena.together(lambda data: arena.raw(data, wait=wait), batch, width=20)
        assert not arena.faults, "\n".join(arena.faults[:5])

    with stand.beside() as seen:
        send()
    broken = broken_by(seen.last)
    assert not broken, report(broken, arena, seen.last)
