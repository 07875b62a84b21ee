"""Unknown fields of a request: the header of its response, and one log line a name."""

from __future__ import annotations

import logging

import pytest

from server.http import ignored_fields
from server.http.ignored_fields import (
    MAX_NAME_LENGTH,
    MAX_NAMES,
    ignored_header,
    ignored_names,
    report_ignored,
)
from tests.support.asgi import ask

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(autouse=True)
def logged(monkeypatch):
    names = set()
    monkeypatch.setattr(ignored_fields, "_logged", names)
    return names


def header(*names):
    scope = {"type": "http", "state": {}}
    report_ignored(scope, names)
    return ignored_header(ignored_names(scope))


@pytest.mark.parametrize(
    ("names", "value"),
    [
        (["temprature"], b"temprature"),
        (["a", "b.c", "a"], b"a, b.c"),
        (["a, b", "x\r\nset-cookie: y", "é", ""], b"a??b, x??set-cookie??y, ?"),
        (["x" * 1000], b"x" * MAX_NAME_LENGTH),
        (
            [f"n{i}" for i in range(MAX_NAMES + 3)],
            ", ".join([f"n{i}" for i in range(MAX_NAMES)] + ["+3"]).encode(),
        ),
    ],
)
def test_the_header(names, value):
    assert header(*names) == [(b"x-roseinfer-ignored", value)]


def test_no_header_without_unknown_fields():
    assert header() == []
    assert ignored_header(ignored_names({"type": "http"})) == []


def test_a_name_is_logged_once(caplog):
    with caplog.at_level(logging.WARNING, logger="roseinfer.server"):
        header("one", "two")
        header("two", "one", "three")
    assert [record.args for record in caplog.records] == [("one",), ("two",), ("three",)]


def test_the_number_of_logged_names_is_bounded(caplog, logged):
    for i in range(0, 1000, 10):
        header(*(f"n{j}" for j in range(i, i + 10)))
    assert len(caplog.records) == len(logged) == ignored_fields.MAX_LOGGED


@pytest.mark.parametrize("stream", [False, True])
async def test_the_answer_names_what_was_ignored(start_app, stream):
    app = await start_app()
    exchange = await ask(app, "POST", CHAT, BODY | {"stream": stream, "temprature": 0, "x y": 1})
    assert exchange.status == 200
    assert exchange.headers["x-roseinfer-ignored"] == "temprature, x?y"
    exchange = await ask(app, "POST", CHAT, BODY | {"stream": stream})
    assert "x-roseinfer-ignored" not in exchange.headers


@pytest.mark.parametrize("stream", [False, True])
async def test_keywords_that_cannot_be_enforced_are_named(start_app, stream):
    app = await start_app()
    schema = {"type": "array", "uniqueItems": True}
    spec = {"name": "n", "schema": schema, "strict": False}
    asked = {"stream": stream, "response_format": {"type": "json_schema", "json_schema": spec}}
    for path, prompt in ((CHAT, BODY), ("/v1/completions", {"prompt": "x"})):
        exchange = await ask(app, "POST", path, prompt | asked)
        assert exchange.status == 200
        assert exchange.headers["x-roseinfer-ignored"] == "response_format.uniqueItems"
    body = BODY | asked
    exchange = await ask(app, "POST", CHAT, body | {"z": 1})
    assert exchange.headers["x-roseinfer-ignored"] == "z, response_format.uniqueItems"
    spec["strict"] = True
    assert (await ask(app, "POST", CHAT, body)).status == 400


async def test_a_refusal_names_it_too(start_app):
    exchange = await ask(await start_app(), "POST", CHAT, BODY | {"x": 1, "n": 2, "mirostat": 2})
    assert exchange.status == 400
    assert exchange.headers["x-roseinfer-ignored"] == "x"


async def test_strict_fields(start_app):
    app = await start_app(strict_fields=True)
    exchange = await ask(app, "POST", CHAT, BODY | {"temprature": 0})
    assert exchange.status == 400
    assert exchange.json["error"]["param"] == "temprature"
    assert (await ask(app, "POST", CHAT, BODY | {"temperature": 0})).status == 200
