"""Lists that are long, or whose work is repeated."""

from __future__ import annotations

from compat_tests.support.http import encode
from tests.bystander.arena import CHAT, COMPLETIONS, Arena, attack


@attack("allowed_token_ids with millions of copies of an id, n=8", is_quick=True)
def allowed_ids(arena: Arena) -> None:
    ids = b"5," * arena.amount(8_000_000) + b"5"
    head = encode(arena.completion(max_tokens=8, n=8))[:-1]
    arena.post(COMPLETIONS, head + b',"allowed_token_ids":[' + ids + b"]}", timeout=60)


@attack("bad_words with 100,000 words")
def bad_words(arena: Arena) -> None:
    words = [f"w{number}" for number in range(100_000)]
    arena.post(COMPLETIONS, arena.completion(bad_words=words, n=8))
    arena.post(COMPLETIONS, arena.completion(bad_words=["x" * 100_000] * 20, n=8))


@attack("logit_bias with 100,000 keys")
def logit_bias(arena: Arena) -> None:
    arena.post(COMPLETIONS, arena.completion(logit_bias={str(i): 1 for i in range(100_000)}, n=8))
    arena.post(COMPLETIONS, arena.completion(logit_bias={str(i): 1 for i in range(1024)}, n=64))


@attack("100,000 stop strings, and stop strings of 1 MB")
def stops(arena: Arena) -> None:
    arena.post(CHAT, arena.chat(stop=[f"s{i}" for i in range(100_000)]))
    arena.post(CHAT, arena.chat(stop=["x" * 1_000_000] * 4))
    arena.post(CHAT, arena.chat(stop_token_ids=list(range(2000)) * 50))


@attack("10,000 tools", is_quick=True)
def tools(arena: Arena) -> None:
    function = {"name": "f", "parameters": {"type": "object", "properties": {}}}
    tools = [
        {"type": "function", "function": function | {"name": f"f{i}"}}
        for i in range(arena.amount(10_000))
    ]
    arena.post(CHAT, arena.chat(tools=tools))
    arena.post(CHAT, arena.chat(tools=tools, tool_choice="required"))


@attack("4,096 messages, 100,000 messages, 100,000 content parts")
def messages(arena: Arena) -> None:
    message = {"role": "user", "content": "a"}
    for num in (4096, 100_000):
        arena.post(CHAT, arena.chat() | {"messages": [message] * num})
    arena.post(CHAT, arena.chat([{"type": "text", "text": "a"}] * 100_000))


@attack("metadata, names and salts of 1 MB")
def long_strings(arena: Arena) -> None:
    long = "x" * 1_000_000
    for name in ("user", "cache_salt", "model", "safety_identifier", "prompt_cache_key"):
        arena.post(CHAT, arena.chat(**{name: long}))
    arena.post(CHAT, arena.chat(metadata={str(i): long[:1000] for i in range(1000)}))
    arena.post(CHAT, arena.chat(**{f"unknown{i}": 1 for i in range(20_000)}))
