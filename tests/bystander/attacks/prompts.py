"""Prompts and answers that are large, or many."""

from __future__ import annotations

from compat_tests.support.http import encode
from schemas.limits import MAX_COMMAS
from tests.bystander.arena import CHAT, COMPLETIONS, Arena, attack


@attack("two 8 MB prompts whose senders leave", is_quick=True)
def large_prompts(arena: Arena) -> None:
    text = "lorem ipsum dolor sit amet " * arena.amount(300_000)
    arena.together(lambda _: arena.leave(CHAT, arena.chat(text), after=0.5), range(2))
    arena.post(CHAT, arena.chat(text))


@attack("/tokenize of 8 MB with return_token_strs", is_quick=True)
def token_strings(arena: Arena) -> None:
    text = "lorem ipsum dolor sit amet " * arena.amount(300_000)
    body = encode({"prompt": text, "return_token_strs": True})
    arena.together(lambda _: arena.post("/tokenize", body, timeout=60), range(2))


@attack("/detokenize of a million ids, and prompts of as many")
def detokenize(arena: Arena) -> None:
    ids = b"77," * arena.amount(MAX_COMMAS - 1) + b"77"
    for _ in range(4):
        arena.post("/detokenize", b'{"tokens":[' + ids + b"]}", timeout=60)
        arena.post(COMPLETIONS, b'{"prompt":[' + ids + b"]}", timeout=60)


@attack("chat_template_kwargs with 18 MB of []", is_quick=True)
def template_arguments(arena: Arena) -> None:
    lists = b"[]," * arena.amount(6_000_000) + b"[]"
    head = encode(arena.chat())[:-1]
    body = head + b',"chat_template_kwargs":{"a":[' + lists + b"]}}"
    arena.post(CHAT, body, timeout=60)


@attack("echo and 20 logprobs on 80,000 tokens")
def scored_prompts(arena: Arena) -> None:
    prompts = [[70 + i % 150] * 1000 for i in range(arena.amount(80))]
    body = arena.completion(prompts, max_tokens=0, echo=True, logprobs=20)
    arena.post(COMPLETIONS, body, timeout=120)


@attack("one request with 500 prompts", is_quick=True)
def many_prompts(arena: Arena) -> None:
    prompts = [f"Story number {i}: once upon a time" for i in range(arena.amount(500, least=200))]
    body = arena.completion(prompts, max_tokens=arena.amount(64, least=16), ignore_eos=True)
    arena.post(COMPLETIONS, body, timeout=120)


@attack("n=128 with long answers")
def many_choices(arena: Arena) -> None:
    body = arena.chat(n=128, max_tokens=arena.amount(400), temperature=1, ignore_eos=True)
    arena.post(CHAT, body, timeout=180)
    arena.post(CHAT, body | {"logprobs": True, "top_logprobs": 20, "n": 32}, timeout=180)


@attack("n=128 streamed, senders leave", is_quick=True)
def abandoned_choices(arena: Arena) -> None:
    body = arena.chat(n=128, max_tokens=1500, ignore_eos=True, stream=True, temperature=1)
    arena.together(lambda _: arena.leave(CHAT, body, after=0.4), range(3))
