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
    (
        "/v1/responses",
        {
            "model": "roseinfer-tiny", "max_output_tokens": 1, "store": True, "truncation": "auto",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
                {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e"},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "7"},
                {"type": "item_reference", "id": "msg_1"},
            ],
            "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}],
            "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}},
            "reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"],
        },
    ),
    ("/v1/responses", {"model": "roseinfer-tiny", "input": "hi", "max_output_tokens": 1,
                       "stream": True, "previous_response_id": "resp_1"}),
    (
        "/v1/messages",
        {
            "max_tokens": 2, "system": [{"type": "text", "text": "s"}], "stream": True,
            "messages": [
                {"role": "user", "content": "x"},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "t", "signature": "roseinfer:eJwrAQAAdQB1"},
                    {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t", "content": [
                        {"type": "text", "text": "7"}
                    ]}
                ]},
            ],
            "tools": [{"name": "f", "input_schema": SCHEMA}], "tool_choice": {"type": "auto"},
            "thinking": {"type": "enabled", "budget_tokens": 5}, "stop_sequences": ["a"],
        },
    ),
    ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "x"}]}),
    (
        "/api/chat",
        {
            "messages": [
                {"role": "user", "content": "x"},
                {"role": "assistant", "tool_calls": [
                    {"function": {"name": "f", "arguments": {"a": 1}}}
                ]},
                {"role": "tool", "tool_name": "f", "content": "7"},
            ],
            "format": SCHEMA, "options": {"num_predict": 2, "stop": ["a"], "top_k": 5},
            "tools": [TOOL], "think": True, "keep_alive": "5m",
        },
    ),
    ("/api/generate", {"prompt": "x", "options": {"num_predict": 1}, "raw": True, "suffix": ""}),
    ("/api/show", {"model": "roseinfer-tiny"}),
    ("/v1/embeddings", {"input": ["a", "b"], "encoding_format": "base64"}),
    ("/v1/rerank", {"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1}),
    ("/v1/score", {"text_1": "a", "text_2": ["b"], "truncate_prompt_tokens": 5}),
]  # fmt: skip
GETS = (
    *("/health", "/v1/models", "/stats", "/openapi.json", "/nowhere", "/api/tags", "/api/ps"),
    *("/v1/responses/resp_1", "/v1/responses/resp_1/input_items?limit=5"),
)

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
