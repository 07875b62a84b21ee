"""Coded bodies: decoded within the limit of the body's size, counted in the budgets."""

import gzip
import zlib

import msgspec
import pytest

from server.http.body import coding_of, decompress
from server.http.errors import APIError
from tests.support.asgi import ask

pytestmark = pytest.mark.anyio

TEXT = b"hello " * 100
CHAT = "/v1/chat/completions"


def raw_deflate(data):
    coder = zlib.compressobj(wbits=-15)
    return coder.compress(data) + coder.flush()


CODED = [("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", raw_deflate)]


def status_of(call, *args):
    with pytest.raises(APIError) as caught:
        call(*args)
    return caught.value.status


@pytest.mark.parametrize(("coding", "encode"), CODED)
async def test_the_limit_is_of_the_decoded_size(coding, encode):
    for data in (b"", b"x", TEXT):
        assert decompress(encode(data), coding, max(len(data), 1)) == data
    assert status_of(decompress, encode(TEXT), coding, len(TEXT) - 1) == 413
    assert status_of(decompress, encode(bytes(10**7)), coding, 1000) == 413


@pytest.mark.parametrize(("coding", "encode"), CODED)
async def test_what_is_not_coded_so_is_refused(coding, encode):
    whole = encode(TEXT)
    for body in (whole[:-1], whole[:5], whole + b"x", TEXT, b""):
        assert status_of(decompress, body, coding, 10_000) == 400


async def test_members_of_gzip_are_joined():
    first, second = gzip.compress(TEXT), gzip.compress(b"x")
    assert decompress(first + second + gzip.compress(b""), "gzip", 601) == TEXT + b"x"
    assert status_of(decompress, first + second, "gzip", 600) == 413
    assert status_of(decompress, second + first[:-1], "gzip", 10_000) == 400
    assert status_of(decompress, second * 65, "gzip", 10_000) == 400
    assert status_of(decompress, zlib.compress(TEXT) * 2, "deflate", 10_000) == 400


async def test_names_of_codings():
    for given in ("", "identity", " Identity , identity"):
        assert coding_of({"content-encoding": given}) is None
    assert coding_of({}) is None
    for given in ("gzip", "x-gzip", "GZIP", "identity, gzip"):
        assert coding_of({"content-encoding": given}) == "gzip"
    for given in ("br", "gzip, gzip", "gzip, br", "zip"):
        assert status_of(coding_of, {"content-encoding": given}) == 415


async def test_decoded_bytes_count_as_the_body(start_app):
    app = await start_app(max_body_size=100_000)
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    body = msgspec.json.encode({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1})
    for size, status in [(0, 200), (90_000, 200), (200_000, 413)]:
        data = gzip.compress(body + b" " * size)
        reply = await ask(app, "POST", CHAT, data, headers=headers)
        assert reply.status == status, reply.body


async def test_a_decoded_body_without_room_is_refused(start_app):
    app = await start_app()
    budget = app.litestar.state.serving.admission.body_bytes
    budget.take("127.0.0.1", budget.limit - 10_000)
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    body = gzip.compress(b'{"messages": [{"role": "user", "content": "%b"}]}' % (b"x" * 50_000))
    reply = await ask(app, "POST", CHAT, body, headers=headers)
    assert reply.status == 429
