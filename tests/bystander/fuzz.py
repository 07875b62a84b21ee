"""Raw requests that are broken at random: bytes flipped, cut, doubled, spliced."""

from __future__ import annotations

import random
from collections.abc import Iterator

from compat_tests.support.api import CHAT, COMPLETIONS, Json
from compat_tests.support.http import encode

TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}},
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FORMAT = {"name": "x", "schema": SCHEMA}

BODIES: list[tuple[str, Json]] = [
    (CHAT, {"messages": [{"role": "user", "content": "hé🦊"}], "max_tokens": 1, "stream": True}),
    (
        CHAT,
        {
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "x"}]},
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                ]},
                {"role": "tool", "tool_call_id": "1", "content": "7"},
            ],
            "max_completion_tokens": 2, "tools": [TOOL], "tool_choice": "auto",
            "temperature": 0.5, "top_p": 0.9, "n": 2, "seed": 1, "logit_bias": {"7": 3},
        },
    ),
    (
        CHAT,
        {
            "messages": [{"role": "user", "content": "x"}], "max_tokens": 2,
            "response_format": {"type": "json_schema", "json_schema": FORMAT},
            "stop": ["a", "b"], "logprobs": True, "top_logprobs": 2,
        },
    ),
    (COMPLETIONS, {"prompt": ["a", "b"], "max_tokens": 1, "echo": True, "logprobs": 1}),
    (COMPLETIONS, {"prompt": [1, 2, 3], "max_tokens": 1, "guided_regex": "[ab]c*", "best_of": 2}),
    ("/tokenize", {"prompt": "hello", "return_token_strs": True}),
    ("/detokenize", {"tokens": [1, 2, 3]}),
    ("/generate", {"prompt": "hi", "max_new_tokens": 1}),
]  # fmt: skip
GETS = ("/health", "/v1/models", "/stats", "/openapi.json", "/nowhere")

WORDS = (
    *(b"\r\n", b"\n", b"\0", b"\xff", b"\xed\xa0\x80", b"{", b"}", b"[", b"]", b'"', b"\\", b":"),
    *(b"," * 50, b"[" * 2000, b'{"a":' * 2000, b"9" * 400, b"-1", b"1e999", b"NaN", b"null"),
    *(b"true", b'""', b"\\u0000", b"\\ud800", b" " * 5000, b"%00", b"../", b"HTTP/1.1"),
    *(b"content-length: 5\r\n", b"transfer-encoding: chunked\r\n", b"expect: 100-continue\r\n"),
    *(b"connection: close\r\n", b"content-type: text/plain\r\n", b"host: evil.example\r\n"),
    *(b'"n":3,', b'"stream":true,', b'"temperature":null,', b'"messages":[],', b'"stop":[""],'),
)


def head(path: str, length: int, host: bytes) -> bytes:
    return (
        b"POST " + path.encode() + b" HTTP/1.1\r\nhost: " + host
        + b"\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % length
    )  # fmt: skip


def mutate(data: bytes, others: list[bytes], dice: random.Random) -> bytes:
    """Change one to four places."""
    mutated = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 2, 3, 4))):
        at = dice.randrange(len(mutated) + 1)
        end = min(len(mutated), at + dice.choice((1, 2, 4, 16, 64)))
        match dice.randrange(8):
            case 0 if at < len(mutated):
                mutated[at] ^= 1 << dice.randrange(8)
            case 1 if at < len(mutated):
                mutated[at] = dice.randrange(256)
            case 2:
                del mutated[at:end]
            case 3:
                mutated[at:at] = mutated[at:end] * dice.choice((1, 1, 30))
            case 4:
                mutated[at:at] = dice.choice(WORDS)
            case 5:
                mutated[at:end] = dice.choice(WORDS)
            case 6:
                other = dice.choice(others)
                start = dice.randrange(len(other))
                mutated[at:end] = other[start : start + 40]
            case _:
                mutated[at:at] = dice.randbytes(dice.choice((1, 3, 20)))
    if dice.random() < 0.03:
        del mutated[dice.randrange(len(mutated) + 1) :]
    return bytes(mutated)


def requests(number: int, seed: int, host: bytes) -> Iterator[bytes]:
    """So many raw requests: two thirds have a broken body in a whole frame, one third is broken
    anywhere."""
    dice = random.Random(seed)
    bodies = [(path, encode(body)) for path, body in BODIES]
    datas = [data for _, data in bodies]
    wholes = [head(path, len(data), host) + data for path, data in bodies]
    wholes += [
        b"GET " + path.encode() + b" HTTP/1.1\r\nhost: " + host + b"\r\n\r\n" for path in GETS
    ]
    for _ in range(number):
        if dice.random() < 0.66:
            path, data = dice.choice(bodies)
            data = mutate(data, datas, dice)
            yield head(path, len(data), host) + data
        else:
            yield mutate(dice.choice(wholes), wholes, dice)
