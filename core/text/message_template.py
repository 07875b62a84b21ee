"""Texts to embed or score that a chat template shows.

A text is a message of the role user, a pair is one of the role query and one of the role document.
The form is sentence-transformers'. A template is tried with texts instead of read: it may pass
roles on without naming them, or name them where these messages never come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import structs

from core.contract.errors import InvalidRequest
from core.contract.info import MessageTemplate
from core.text.tokenizer import Tokenizer

Texts: TypeAlias = tuple[str] | tuple[str, str]
"""One text, or a pair."""

_ROLES = {1: ("user",), 2: ("query", "document")}
_TRIALS: dict[int, tuple[Texts, ...]] = {
    1: (("alpha",), ("charlie",)),
    2: (("alpha", "bravo"), ("charlie", "bravo"), ("alpha", "foxtrot")),
}
"""The first of them, and those that differ in one text."""
_NOT_VARIABLES = ("add_generation_prompt", "restore_suffix", "max_length", "padding", "truncation")


def find_template(
    tokenizer: Tokenizer, num_texts: int, formats: Sequence[bool], options: Mapping[str, Any]
) -> MessageTemplate | None:
    """Find how the tokenizer's template shows so many texts, in the first of ``formats`` it can.

    A format says whether contents are lists of parts. ``options`` are sentence-transformers'
    arguments of the template.
    """
    variables = {name: value for name, value in options.items() if name not in _NOT_VARIABLES}
    for has_parts in formats:
        template = MessageTemplate(
            has_parts=has_parts,
            takes_instruction=True,
            adds_generation_prompt=bool(options.get("add_generation_prompt")),
            options=variables,
        )
        trials = _TRIALS[num_texts]
        shown, *changed = (_shown(tokenizer, template, texts) for texts in trials)
        if shown is None or shown in changed:
            continue
        instructed = _shown(tokenizer, template, trials[0], "golf")
        return structs.replace(template, takes_instruction=instructed not in (None, shown))
    return None


def encode_shown(
    tokenizer: Tokenizer, template: MessageTemplate, texts: Texts, instruction: str
) -> list[int]:
    """The ids of texts. An empty ``instruction`` is that of the template. Raises InvalidRequest.

    The text of special tokens in the texts stays text.
    """
    return tokenizer.encode_chat(**_arguments(template, texts, instruction))


def end_of_shown(
    tokenizer: Tokenizer, template: MessageTemplate, num_texts: int, instruction: str
) -> list[int]:
    """The ids that the template puts after so many texts: if they are cut, these stay."""
    trials: tuple[Texts, ...] = (("0",), ("1 2 3 4",))
    if num_texts == 2:
        trials = (("0", "0"), ("1 2 3 4", "1 2 3 4"))
    one, other = (encode_shown(tokenizer, template, texts, instruction) for texts in trials)
    count = 0
    while count < min(len(one), len(other)) and one[-count - 1] == other[-count - 1]:
        count += 1
    return one[len(one) - count :]


def _shown(
    tokenizer: Tokenizer, template: MessageTemplate, texts: Texts, instruction: str = ""
) -> str | None:
    """The rendered text, None if the template does not take the messages."""
    try:
        return tokenizer.render_chat(**_arguments(template, texts, instruction))
    except InvalidRequest:
        return None


def _arguments(template: MessageTemplate, texts: Texts, instruction: str) -> dict[str, Any]:
    given = [*zip(_ROLES[len(texts)], texts, strict=True)]
    if instruction:
        given.insert(0, ("system", instruction))
    wrap: Callable[[str], object] = _parts if template.has_parts else str
    return {
        "messages": [{"role": role, "content": wrap(text)} for role, text in given],
        "add_generation_prompt": template.adds_generation_prompt,
        "template_kwargs": template.options,
    }


def _parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]
