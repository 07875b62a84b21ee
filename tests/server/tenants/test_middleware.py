"""The tenant of a request, as handlers and the engine see it."""

import pytest

from core.grammar.compiler import GrammarCompiler
from server.settings.key_file import ApiKey
from server.tenants.tenant import Keys, Tenant
from tests.support.asgi import ask
from tests.support.engines import AnsweringEngine, words

pytestmark = pytest.mark.anyio

ROUTES = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ("/v1/completions", {"prompt": "x"}),
    ("/generate", {"prompt": "x"}),
]


def bearer(key):
    return {"authorization": f"Bearer {key}", "content-type": "application/json"}


def tenant(keys=(), headers=()):
    return Keys(map(ApiKey, keys)).tenant(headers, ("192.0.2.1", 5))


def test_a_valid_key_names_the_tenant():
    header = (b"authorization", b"Bearer two")
    found = tenant(["one", "two"], [(b"host", b"x"), header])
    assert (found.name, found.has_key) == ("key#2", True)


@pytest.mark.parametrize("headers", [[], [(b"authorization", b"Bearer x")]])
@pytest.mark.parametrize("keys", [[], ["one"]])
def test_without_a_valid_key_the_address_does(keys, headers):
    assert tenant(keys, headers) == Tenant("192.0.2.1")


def test_the_first_authorization_counts():
    first, second = (b"authorization", b"Bearer x"), (b"authorization", b"Bearer one")
    assert not (tenant(["one"], [first, second])).has_key


async def salts(start_app, *requests, routes=ROUTES, **settings):
    """The salts that the engine got for ``(headers, fields)``, route by route."""
    engine = AnsweringEngine(words("Hi"))
    app = await start_app(engine, **settings)
    for path, body in routes:
        for headers, fields in requests:
            assert (await ask(app, "POST", path, body | fields, headers)).status == 200
    return [request.cache_salt for request in engine.requests]


async def test_each_key_has_a_prefix_cache_of_its_own(start_app):
    found = await salts(start_app, (bearer("a"), {}), (bearer("b"), {}), api_keys=("a", "b"))
    assert found == found[:2] * len(ROUTES)
    assert len({found[0], found[1], ""}) == 3


async def test_the_salt_of_a_request_divides_that_of_the_key(start_app):
    requests = [(bearer(key), fields) for key in "ab" for fields in ({}, {"cache_salt": "mine"})]
    found = await salts(start_app, *requests, routes=ROUTES[:2], api_keys=("a", "b"))
    assert found == found[:4] * 2
    assert len({*found, "mine", ""}) == 6


async def test_without_keys_all_share_one_prefix_cache(start_app):
    json = {"content-type": "application/json"}
    assert set(await salts(start_app, (json, {}), (bearer("any"), {}))) == {""}
    salted = (json, {"cache_salt": "mine"})
    assert await salts(start_app, salted, routes=ROUTES[:2]) == ["mine"] * 2


async def test_keys_can_share_one_prefix_cache(start_app):
    requests = [(bearer(key), {}) for key in "ab"]
    found = await salts(start_app, *requests, api_keys=("a", "b"), share_prefix_cache=True)
    assert set(found) == {""}


@pytest.mark.parametrize(("is_shared", "times"), [(False, [1, 2, 3, 3]), (True, [1, 1, 2, 2])])
async def test_a_grammar_is_known_to_the_key_that_compiled_it(
    start_app, monkeypatch, is_shared, times
):
    """Else the time of an answer would show which grammars others use."""
    compiled = []
    whole = GrammarCompiler._compile
    monkeypatch.setattr(
        GrammarCompiler, "_compile", lambda *args: compiled.append(1) or whole(*args)
    )
    app = await start_app(
        AnsweringEngine(words("{}")), api_keys=("a", "b"), share_prefix_cache=is_shared
    )
    path, body = ROUTES[0]
    body |= {"response_format": {"type": "json_object"}}
    found = []
    for key, fields in (("a", {}), ("b", {}), ("a", {"cache_salt": "mine"}), ("b", {})):
        assert (await ask(app, "POST", path, body | fields, bearer(key))).status == 200
        found.append(len(compiled))
    assert found == times
