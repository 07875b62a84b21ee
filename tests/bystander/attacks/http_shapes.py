"""Bytes that are almost HTTP: smuggling shapes, other protocols, broken framing."""

from __future__ import annotations

from tests.bystander.arena import CHAT, Arena, attack

HOST = b"host: localhost\r\n"
JSON = b"content-type: application/json\r\n"

HELLO_OF_TLS = bytes.fromhex("1603010200010001fc0303") + b"\x00" * 500
PREFACE_OF_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def shapes(body: bytes) -> list[bytes]:
    """Requests whose framing is wrong or says two things."""
    length = b"content-length: %d\r\n" % len(body)
    start = b"POST " + CHAT.encode() + b" HTTP/1.1\r\n" + HOST + JSON
    chunked = b"transfer-encoding: chunked\r\n"
    one_chunk = b"%x\r\n" % len(body) + body + b"\r\n"
    smuggled = b"GET /admin HTTP/1.1\r\n" + HOST + b"\r\n"
    return [
        start + length + chunked + b"\r\n" + b"0\r\n\r\n" + smuggled,
        start + chunked + length + b"\r\n" + one_chunk + b"0\r\n\r\n",
        start + length + b"content-length: 1\r\n\r\n" + body,
        start + b"content-length: -1\r\n\r\n" + body,
        start + b"content-length: +%d\r\n\r\n" % len(body) + body,
        start + b"content-length: 0x10\r\n\r\n" + body,
        start + b"content-length: " + b"9" * 400 + b"\r\n\r\n" + body,
        start + b"content-length : 5\r\n\r\n" + body,
        start + b"transfer-encoding: xchunked\r\n\r\n" + one_chunk,
        start + b"transfer-encoding: chunked, identity\r\n\r\n" + one_chunk,
        start + b"transfer-encoding:\tchunked\r\n\r\n" + one_chunk + b"0\r\n\r\n",
        start + b"transfer-encoding\r\n : chunked\r\n\r\n" + one_chunk,
        start + chunked + b"\r\n" + b"fffffffffffffffff\r\n" + body,
        start + chunked + b"\r\n" + b"-1\r\n" + body,
        start + chunked + b"\r\n" + b"5;" + b"x" * 60_000 + b"\r\n{}   \r\n0\r\n\r\n",
        start + chunked + b"\r\n" + b"1\r\n{\r\n" * 3000,
        start + chunked + b"\r\n" + one_chunk + b"0\r\n" + b"x: y\r\n" * 20_000 + b"\r\n",
        start.replace(b"\r\n", b"\n") + length + b"\n" + body,
        start + b" folded: yes\r\n" + length + b"\r\n" + body,
        start + b"x: a\x00b\r\n" + length + b"\r\n" + body,
        start + b"x: \xff\xfe\r\n" + length + b"\r\n" + body,
        start + b"authorization: Bearer \xc3\xa9\xff\r\n" + length + b"\r\n" + body,
        start + HOST * 100 + length + b"\r\n" + body,
        start + b": no name\r\n" + length + b"\r\n" + body,
        start + b"expect: 200-maybe\r\n" + length + b"\r\n" + body,
        start + b"upgrade: websocket\r\nconnection: upgrade\r\n" + length + b"\r\n" + body,
        start
        + b"upgrade: h2c\r\nconnection: upgrade, http2-settings\r\n"
        + length
        + b"\r\n"
        + body,
    ]


def request_lines() -> list[bytes]:
    """First lines that are no first lines."""
    rest = b"\r\n" + HOST + b"\r\n"
    return [
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1" + rest,
        b"GET /%00%ff%zz?%%%&&&=== HTTP/1.1" + rest,
        b"GET //..//..//etc/passwd HTTP/1.1" + rest,
        b"GET http://evil.example/health HTTP/1.1" + rest,
        b"GET * HTTP/1.1" + rest,
        b"CONNECT evil.example:443 HTTP/1.1" + rest,
        b"OPTIONS * HTTP/1.1" + rest,
        b"TRACE /health HTTP/1.1" + rest,
        b"BREW /health HTTP/1.1" + rest,
        b"A" * 100_000 + b" / HTTP/1.1" + rest,
        b"GET /health HTTP/9.9" + rest,
        b"GET /health HTTP/1.0\r\n\r\n",
        b"GET /health\r\n\r\n",
        b"GET  /health  HTTP/1.1" + rest,
        b"\r\n" * 50_000 + b"GET /health HTTP/1.1" + rest,
        b"GET /health HTTP/1.1\r\nhost: a\x00\r\n\r\n",
        b"GET /\x7f\x01\x02 HTTP/1.1" + rest,
        "GET /\u2028é HTTP/1.1".encode() + rest,
        HELLO_OF_TLS,
        PREFACE_OF_HTTP2,
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"\x00" * 10_000,
        b"{" * 10_000,
    ]


@attack("almost HTTP: framing that says two things, other protocols", is_quick=True)
def almost_http(arena: Arena) -> None:
    body = b'{"messages":[{"role":"user","content":"hi"}],"max_tokens":1}'
    wait = 3 * max(arena.size, 0.15)
    arena.together(
        lambda data: arena.raw(data, wait=wait), [*shapes(body), *request_lines()], width=24
    )


@attack("4,000 header lines, and headers of 60 KB")
def large_headers(arena: Arena) -> None:
    start = b"GET /health HTTP/1.1\r\n" + HOST
    for lines in (
        b"".join(b"x-%d: y\r\n" % i for i in range(4000)),
        b"x: y\r\n" * 8000,
        b"cookie: " + b"a=b; " * 12_000 + b"\r\n",
        b"x-request-id: " + b"x" * 60_000 + b"\r\n",
        b"authorization: " + b"x" * 60_000 + b"\r\n",
        b"accept: " + b"a/b," * 15_000 + b"\r\n",
        b"origin: " + b"h" * 60_000 + b"\r\n",
        b"x-forwarded-for: " + b"1.1.1.1," * 7000 + b"\r\n",
    ):
        for _ in range(arena.amount(10)):
            arena.raw(start + lines + b"\r\n", wait=2)
