"""Bodies that are no requests: deep, broken, compressed, of another kind."""

from __future__ import annotations

import gzip
import io
import zipfile

from compat_tests.support.http import encode
from tests.bystander.arena import CHAT, COMPLETIONS, Arena, attack


def spliced(arena: Arena, name: str, value: bytes) -> bytes:
    """A chat request with one more field, whose value is given as JSON text."""
    return encode(arena.chat(max_tokens=1))[:-1] + b',"' + name.encode() + b'":' + value + b"}"


@attack("nesting of 100,000 levels", is_quick=True)
def nesting(arena: Arena) -> None:
    depth = 100_000
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        value = opening * depth + b"1" + closing * depth
        for name in ("tools", "chat_template_kwargs", "unknown", "response_format", "metadata"):
            arena.post(CHAT, spliced(arena, name, value))
        arena.post(CHAT, value)
        arena.post(CHAT, opening * depth)


@attack("numbers of a million digits", is_quick=True)
def huge_numbers(arena: Arena) -> None:
    digits = b"9" * arena.amount(1_000_000)
    for name in ("seed", "max_tokens", "temperature", "unknown", "top_k"):
        for value in (digits, b"-" + digits, b"1e" + digits, b"0." + digits):
            arena.post(CHAT, spliced(arena, name, value))


@attack("text that is no text: lone surrogates, other encodings, NaN", is_quick=True)
def odd_text(arena: Arena) -> None:
    good = encode(arena.chat("hello 🦊", max_tokens=1))
    for data in (
        *(b"", b"null", b"NaN", b"\x00" * 1000, b"\xff\xfe" + good, b"\xef\xbb\xbf" + good),
        *(good.decode().encode("utf-16"), good.decode().encode("utf-32"), good + good, good[:-1]),
        *(good.replace("🦊".encode(), b"\xed\xa0\x80"), good.replace("🦊".encode(), b"\\ud800")),
        *(good.replace("🦊".encode(), b"\x00"), good.replace("🦊".encode(), b"\xff")),
        spliced(arena, "temperature", b"NaN"),
        spliced(arena, "temperature", b"Infinity"),
        spliced(arena, "messages", b"[]"),
        spliced(arena, "user", b'"' + "\u202e\u0000️‍👩‍👩‍👧".encode() * 2000 + b'"'),
    ):
        arena.post(CHAT, data)


@attack("compressed bodies, a zip bomb among them")
def compressed(arena: Arena) -> None:
    good = encode(arena.chat(max_tokens=1))
    bomb = gzip.compress(gzip.compress(b"\0" * 200_000_000))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a", b"\0" * 50_000_000)
    for data in (gzip.compress(good), bomb, archive.getvalue()):
        for encoding in ("gzip", "deflate", "br", "gzip, gzip", "zstd", "x"):
            arena.post(CHAT, data, headers={"content-encoding": encoding})


@attack("bodies of other types, and forms")
def other_types(arena: Arena) -> None:
    good = encode(arena.chat(max_tokens=1))
    form = b"".join(
        b'--b\r\ncontent-disposition: form-data; name="f%d"\r\n\r\nx\r\n' % i for i in range(5000)
    )
    kinds = ("text/plain", "application/x-www-form-urlencoded", "application/xml", "a" * 60_000)
    for kind in kinds:
        arena.post(CHAT, good, headers={"content-type": kind})
    boundary = {"content-type": "multipart/form-data; boundary=b"}
    arena.post(CHAT, form + b"--b--\r\n", headers=boundary)


@attack("30 MB of spaces, of quotes, of backslashes, of one key again and again")
def repeated(arena: Arena) -> None:
    size = arena.amount(30_000_000)
    good = encode(arena.chat(max_tokens=1))
    for data in (
        b" " * size + good,
        good[:-1] + b',"user":"' + b'\\"' * (size // 2) + b'"}',
        good[:-1] + b',"user":"' + b"\\u0000" * (size // 6) + b'"}',
        b"{" + b'"max_tokens":1,' * (size // 15) + good[1:],
        b"{" + b'"unknown":1,' * (size // 12) + good[1:],
        b"{" + b'"unknown":[{}],' * (size // 15) + good[1:],
    ):
        arena.post(CHAT, data, timeout=60)


@attack("bodies above the limit, declared and not")
def too_large(arena: Arena) -> None:
    chunk = b"%x\r\n" % 1_000_000 + b" " * 1_000_000 + b"\r\n"
    arena.raw(arena.head(CHAT, 10**15) + b"{", wait=2)
    arena.raw(arena.head(CHAT, None, extra="transfer-encoding: chunked\r\n") + chunk * 40, wait=10)
    arena.post(COMPLETIONS, b" " * 40_000_000)
