"""No key, no salt and no prompt leaves the server by another way than the answer."""

import logging

import anyio
import msgspec
import pytest

from server.tenants.tenant import tenant_of
from tests.support.asgi import Exchange, ask
from tests.support.engines import AnsweringEngine, out, words

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
KEYS = ("sk-first-4711", "sk-second-0815")
PROMPT = "rosebud"
MESSAGES = [{"role": "user", "content": PROMPT}]


def bearer(key):
    return {"authorization": f"Bearer {key}", "content-type": "application/json"}


REQUESTS = [
    ("POST", CHAT, {"messages": MESSAGES}),
    ("POST", CHAT, {"messages": MESSAGES, "stream": True}),
    ("POST", CHAT, {"messages": MESSAGES, "model": PROMPT}),
    ("POST", CHAT, {"messages": MESSAGES, "temperature": PROMPT}),
    ("POST", CHAT, {"messages": MESSAGES, "user": PROMPT, "cache_salt": PROMPT + "/"}),
    ("POST", CHAT, {"messages": MESSAGES, "chat_template": "{{ " + PROMPT}),
    ("POST", CHAT, {"messages": MESSAGES, "guided_grammar": PROMPT}),
    ("POST", CHAT, {"messages": MESSAGES, "guided_regex": "(" + PROMPT}),
    ("POST", CHAT, {"messages": [{"role": "user", "content": PROMPT * 1000}]}),
    ("POST", "/v1/completions", {"prompt": PROMPT, "echo": True}),
    ("POST", "/v1/completions", {"prompt": [PROMPT]}),
    ("POST", "/generate", {"prompt": PROMPT}),
    ("POST", "/tokenize", {"prompt": PROMPT}),
    ("POST", "/detokenize", {"tokens": [10**9]}),
    ("POST", CHAT, b'{"messages": "' + PROMPT.encode()),
    ("POST", CHAT, b"\xff" + PROMPT.encode()),
    ("GET", CHAT, b""),
    ("GET", "/v1/models/other", b""),
    ("GET", "/v1/models", b""),
    ("GET", "/stats", b""),
    ("GET", "/openapi.json", b""),
    ("GET", "/health", b""),
    ("GET", f"/nowhere?key={KEYS[0]}", b""),
]
CLIENTS = (*map(bearer, KEYS), bearer(KEYS[0][:-1]), {}, {"host": PROMPT, "origin": PROMPT})


def salts_of(app):
    return [app.litestar.state.api_keys.find(key.encode()).salt for key in KEYS]


async def test_after_every_kind_of_request(start_app, caplog):
    app = await start_app(AnsweringEngine(words("Hi")), api_keys=KEYS)
    secrets = [*KEYS, *salts_of(app)]
    statuses = set()
    with caplog.at_level(logging.DEBUG):
        for method, path, body in REQUESTS:
            for headers in CLIENTS:
                exchange = await ask(app, method, path, body, headers)
                sent = f"{exchange.body!r} {exchange.headers}"
                assert not [secret for secret in secrets if secret in sent]
                statuses.add(exchange.status)
    assert statuses == {200, 400, 401, 403, 404, 405}
    assert len(caplog.records) >= len(REQUESTS) * len(CLIENTS)
    assert not [secret for secret in (*secrets, PROMPT) if secret in caplog.text]


async def test_after_a_failed_step(start_app, engine, caplog):
    app = await start_app(engine, api_keys=KEYS)
    body = msgspec.json.encode({"messages": MESSAGES, "stream": True})
    exchange = Exchange("POST", CHAT, chunks=[body], headers=bearer(KEYS[0]))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, app)
        await engine.admit(1)
        await engine.say(out(engine.added[0].request_id, "x"))
        engine.crash()
        await exchange.done()
    assert tenant_of(exchange.scope).name == "key#1"
    assert b'"error"' in exchange.body
    for text in (exchange.body.decode(), caplog.text):
        assert not [secret for secret in (*KEYS, *salts_of(app), PROMPT) if secret in text]
