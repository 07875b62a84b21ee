"""turn_end: the special token that a chat template writes right after an assistant's text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from core.contract.errors import InvalidRequest

_USER, _ANSWER = "5830174296", "4721908365"


def turn_end(
    render: Callable[..., str], special_texts: Sequence[str], bos_token: str | None
) -> str | None:
    """Return its text; None if there is none.

    ``render`` takes a conversation and ``add_generation_prompt``, and raises InvalidRequest for
    one that the template rejects. Blanks may stand before the token. A token that begins a text or
    a turn ends nothing. Some templates end only turns that others follow, so that is tried if
    nothing follows an answer at the end.
    """
    if not special_texts:
        return None
    longest_first = sorted(special_texts, key=len, reverse=True)
    special = re.compile("|".join(map(re.escape, longest_first)))
    turns = [{"role": "user", "content": _USER}, {"role": "assistant", "content": _ANSWER}]
    try:
        beginnings = {bos_token, *_beginnings(render, special, turns[:1])}
    except InvalidRequest:  # no template, or one that rejects this conversation
        return None
    for conversation in (turns, [*turns, turns[0]]):
        try:
            rendered = render(conversation, add_generation_prompt=False)
        except InvalidRequest:
            continue
        _, _, after = rendered.rpartition(_ANSWER)
        found = special.match(after.lstrip())
        if found and found[0] not in beginnings:
            return found[0]
    return None


def _beginnings(render: Callable[..., str], special: Any, turns: Sequence[Any]) -> set[str]:
    """The special tokens that begin turns: the last one before a text, and those of a prompt."""
    closed = render(turns, add_generation_prompt=False)
    prompt = render(turns, add_generation_prompt=True).removeprefix(closed)
    before, _, _ = closed.partition(_USER)
    return {*special.findall(before)[-1:], *special.findall(prompt)}
