"""Models that make vectors or scores: many inputs, huge texts, senders that leave."""

from __future__ import annotations

from compat_tests.support.http import encode
from schemas.limits import MAX_COMMAS, MAX_PROMPTS
from tests.bystander.arena import Arena, attack

EMBED, RERANK, SCORE = "/v1/embeddings", "/v1/rerank", "/v1/score"
OLLAMA, OLD_OLLAMA = "/api/embed", "/api/embeddings"


@attack("2,048 inputs, 100,000 inputs, inputs of 8 MB", kind="embed", is_quick=True)
def many_inputs(arena: Arena) -> None:
    text = "lorem ipsum " * arena.amount(100)
    for num in (MAX_PROMPTS, arena.amount(100_000)):
        for body in ({"input": ["a fox"] * num}, {"input": [[5, 6, 7]] * num}):
            arena.post(EMBED, body, timeout=60)
        arena.post(EMBED, {"input": [text] * num, "truncate_prompt_tokens": -1}, timeout=120)
        arena.post(OLLAMA, {"input": [text] * num}, timeout=120)
    large = "lorem ipsum " * arena.amount(700_000)
    for body in ({"input": large}, {"input": large, "truncate_prompt_tokens": 8}):
        arena.post(EMBED, body, timeout=60)
    arena.post(OLD_OLLAMA, {"prompt": large}, timeout=60)
    ids = b"5," * arena.amount(MAX_COMMAS) + b"5"
    for body in (b'{"input":[' + ids + b"]}", b'{"input":[' + 4 * (ids + b",") + b"5]}"):
        arena.post(EMBED, body, timeout=60)
    arena.post(EMBED, b'{"input":[' + b"[5]," * arena.amount(1_000_000) + b"[5]]}", timeout=60)


@attack("500 requests of 64 inputs whose senders leave", kind="embed")
def leavers(arena: Arena) -> None:
    body = encode({"input": ["a fox and a dog"] * 64})
    arena.together(
        lambda number: arena.leave(EMBED, body, after=0.01 * (number % 20), reset=number % 2 == 0),
        range(arena.amount(500)),
        width=64,
    )


@attack("burst of 200 embeddings", kind="embed", may_refuse=True, is_flood=True)
def burst(arena: Arena) -> None:
    arena.together(
        lambda _: arena.post(EMBED, {"input": ["a fox"] * 8}, timeout=60), range(200), width=50
    )


@attack("embeddings that are refused, without pause", kind="embed")
def refusals(arena: Arena) -> None:
    bodies = (
        *({"input": ""}, {"input": []}, {"input": [""]}, {"input": ["a", 5]}, {"input": [[-1]]}),
        *({"input": [10**9]}, {"input": "a", "dimensions": 10**6}, {"input": "word " * 1000}),
    )
    arena.together(lambda body: arena.post(EMBED, body), bodies * arena.amount(100))


@attack("2,048 documents, a query of 8 MB, a million pairs", kind="score")
def documents(arena: Arena) -> None:
    long = "lorem ipsum " * 100
    large = "lorem ipsum " * arena.amount(700_000)
    for num in (MAX_PROMPTS, arena.amount(100_000)):
        body = {"query": "who?", "documents": ["a fox"] * num}
        arena.post(RERANK, body, timeout=120)
        arena.post(RERANK, body | {"documents": [{"text": "a"}] * num}, timeout=120)
        pairs = {"text_1": ["a"] * num, "text_2": ["b"] * num}
        arena.post(SCORE, pairs, timeout=120)
    cut = {"truncate_prompt_tokens": -1}
    arena.post(RERANK, {"query": "who?", "documents": [long] * MAX_PROMPTS} | cut, timeout=120)
    body = {"query": large, "documents": ["a fox", "a dog"]}
    for more in ({}, cut, {"return_documents": True, **cut}):
        arena.post(RERANK, body | more, timeout=60)
    body = {"query": "who?", "documents": [large], "return_documents": True}
    arena.post(RERANK, body | cut, timeout=60)
    arena.post(SCORE, {"text_1": large, "text_2": ["a"] * MAX_PROMPTS} | cut, timeout=60)


@attack("200 rankings of 64 documents whose senders leave", kind="score")
def left(arena: Arena) -> None:
    body = encode({"query": "who?", "documents": ["a fox and a dog"] * 64})
    arena.together(
        lambda number: arena.leave(RERANK, body, after=0.01 * (number % 20)),
        range(arena.amount(200)),
        width=32,
    )
