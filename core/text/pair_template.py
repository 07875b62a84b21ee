"""Pairs of texts that a chat template shows: a message of the role query, one of the role document.

The form is sentence-transformers'. A template is tried with texts instead of read: it may pass
roles on without naming them, or name them where a pair never comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.contract.errors import InvalidRequest
from core.contract.info import PairTemplate
from core.text.tokenizer import Tokenizer

_PAIR = ("alpha", "bravo")
_CHANGED = (("charlie", "bravo"), ("alpha", "foxtrot"))
_NOT_VARIABLES = ("add_generation_prompt", "restore_suffix", "max_length", "padding", "truncation")


def find_pair_template(
    tokenizer: Tokenizer, formats: Sequence[bool], options: Mapping[str, Any]
) -> PairTemplate | None:
    """How the tokenizer's template shows a pair, in the first of ``formats`` that it can.

    A format says whether contents are lists of parts. ``options`` are sentence-transformers'
    arguments of the template.
    """
    variables = {name: value for name, value in options.items() if name not in _NOT_VARIABLES}
    for has_parts in formats:
        template = PairTemplate(
            has_parts=has_parts,
            takes_instruction=True,
            adds_generation_prompt=bool(options.get("add_generation_prompt")),
            options=variables,
        )
        shown = _shown(tokenizer, template, _PAIR)
        if shown is None or shown in [_shown(tokenizer, template, pair) for pair in _CHANGED]:
            continue
        instructed = _shown(tokenizer, template, _PAIR, "golf")
        if instructed in (None, shown):
            return PairTemplate(
                has_parts=has_parts,
                adds_generation_prompt=template.adds_generation_prompt,
                options=variables,
            )
        return template
    return None


def encode_pair(
    tokenizer: Tokenizer, template: PairTemplate, pair: tuple[str, str], instruction: str
) -> list[int]:
    """The ids of a pair. An empty ``instruction`` is that of the template. Raises InvalidRequest.

    The text of special tokens in the texts stays text.
    """
    return tokenizer.encode_chat(**_arguments(template, pair, instruction))


def end_of_pairs(tokenizer: Tokenizer, template: PairTemplate, instruction: str) -> list[int]:
    """The ids that the template puts after every pair: a pair that is cut keeps them."""
    one, other = (
        encode_pair(tokenizer, template, (text, text), instruction) for text in ("0", "1 2 3 4")
    )
    count = 0
    while count < min(len(one), len(other)) and one[-count - 1] == other[-count - 1]:
        count += 1
    return one[len(one) - count :]


def _shown(
    tokenizer: Tokenizer, template: PairTemplate, pair: tuple[str, str], instruction: str = ""
) -> str | None:
    """The rendered text, None if the template does not take the messages."""
    try:
        return tokenizer.render_chat(**_arguments(template, pair, instruction))
    except InvalidRequest:
        return None


def _arguments(template: PairTemplate, pair: tuple[str, str], instruction: str) -> dict[str, Any]:
    texts = [("query", pair[0]), ("document", pair[1])]
    if instruction:
        texts.insert(0, ("system", instruction))
    wrap: Callable[[str], object] = _parts if template.has_parts else str
    return {
        "messages": [{"role": role, "content": wrap(text)} for role, text in texts],
        "add_generation_prompt": template.adds_generation_prompt,
        "template_kwargs": template.options,
    }


def _parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]
