"""A conversation of 20 turns: from the second turn on, nearly all of the prompt is cached.

Responses and Messages have such a loop among their own tests. Ollama's answers do not tell what was
cached, so both doors here are asked by the server's counters.
"""

import pytest

from compat_tests.support.api import CHAT, Api, Json, user

TURNS = 20
SHARE = 0.95


def answer(api: Api, path: str, messages: list[Json]) -> Json:
    """The message that continues the conversation."""
    body = {"model": api.server.model, "messages": messages}
    if path == CHAT:
        choices = api.ok(path, body | {"temperature": 0, "max_tokens": 8})["choices"]
        return {"role": "assistant", "content": choices[0]["message"]["content"]}
    options = {"temperature": 0, "num_predict": 8}
    message = api.ok(path, body | {"stream": False, "options": options})["message"]
    return {"role": "assistant", "content": message["content"]}


@pytest.mark.parametrize("path", [CHAT, "/api/chat"])
def test_nearly_all_of_a_prompt_is_cached(api: Api, path: str) -> None:
    rules = f"Rules of {path}. " + "".join(f"Rule {n}: be kind and brief. " for n in range(60))
    messages: list[Json] = [{"role": "system", "content": rules}]
    before = api.server.stats()
    for turn in range(TURNS):
        messages += user(f"Go on {turn}.")
        messages.append(answer(api, path, messages))
        after = api.server.stats()
        num_prompt, num_cached = (
            after[name] - before[name] for name in ("num_prompt_tokens", "num_cached_tokens")
        )
        assert num_prompt > 0
        if turn:
            assert num_cached >= SHARE * num_prompt, turn
        before = after
