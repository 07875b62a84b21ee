"""Templates are rendered as transformers renders them."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core import builtin_model
from core.text.chat_templates import PAIR_TEMPLATE_NAMES, TEMPLATE_NAMES, named_template
from core.text.fast_tokenizer import FastTokenizer
from tests.support.pooling_models import PAIR_TEMPLATE
from tests.support.tokenizers import CHATML, byte_fallback

TURNS = "{% for m in messages %}[{{ m.role }}|{{ m.content }}]{% endfor %}"
FEATURES = {
    "blanks": "{% if true %}\n  a\n  {%- for m in messages %}\n  {% if m.content %}\n"
    "<{{ m.role }}>\n    {% endif %}\n  {% endfor %}\n{% endif %}\n b ",
    "break": "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.role }}"
    "{% endfor %}{% for m in messages %}{% if m.role == 'user' %}{% continue %}{% endif %}"
    "{{ m.content }}{% endfor %}",
    "generation": "{% set x = 1 %}{% for m in messages %}{% generation %}{% set x = 2 %}"
    "{{ m.content }}{{ loop.index }}{% endgeneration %}{{ x }}{% endfor %}",
    "tojson": "{{ messages | tojson }}{{ messages | tojson(indent=2) }}{{ tools | tojson(true) }}"
    "{{ {'b': 1, 'a': '<é>&'} | tojson(sort_keys=true, separators=(',', ':')) }}",
    "raise": "{% if messages[0].role != 'user' %}{{ raise_exception('no <user>') }}{% endif %}"
    + TURNS,
    "date": "{{ strftime_now('%Y-%m-%d') }}{{ strftime_now('%d %b') | length }}",
    "namespace": "{% set ns = namespace(n=0, self=2) %}{% for m in messages %}"
    "{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}{{ ns.self }}",
    "underscore": "{% set ns = namespace(_n=0) %}{{ ns._n }}",
    "underscore set": "{% set ns = namespace() %}{% set ns._n = 1 %}x",
    "dict": "{{ dict(a=1, b=tools) }}{{ dict.fromkeys(['a']) }}",
    "class": "{{ ''.__class__.__mro__ }}{{ messages.append(1) }}",
    "class of dict": "{{ dict.mro() }}",
    "mutation": "{{ messages[0].update({'role': 'x'}) }}" + TURNS,
    "thought": "{% for m in messages %}{{ m.reasoning_content }}/{{ m.thinking }}/"
    "{{ m.reasoning }}{{ m is mapping }}{{ 'name' in m }}{% endfor %}",
    "variables": "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ enable_thinking }}"
    "{{ documents }}{{ tools }}{{ add_generation_prompt }}",
    "macro": "{% macro of(m) %}{{ caller(m.content) if caller else m.role }}{% endmacro %}"
    "{% for m in messages %}{{ of(m) }}{% endfor %}{{ undefined_name }}",
    "strip": "{% for m in messages %}<{{ m.content | trim }}>{% endfor %}",
    "first only": "{{ messages[0].content }}",
    "parts": "{% for m in messages %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}",
    "syntax": "{% if %}",
    "undefined": "{{ nothing.at.all }}",
}
TEMPLATES = {
    **{name: named_template(name) for name in (*TEMPLATE_NAMES, *PAIR_TEMPLATE_NAMES)},
    **FEATURES,
    "chatml of tests": CHATML,
    "pairs": PAIR_TEMPLATE,
    "builtin": (builtin_model.path() / "chat_template.jinja").read_text(encoding="utf-8"),
}


def rendered(tokenizer: Any, messages: Any, **arguments: Any) -> str | None:
    """What a tokenizer makes of messages, None for an error."""
    try:
        text: str = tokenizer.apply_chat_template(messages, tokenize=False, **arguments)
    except Exception:  # noqa: BLE001 - a template is a program and may raise anything
        return None
    return text


@pytest.fixture(scope="module")
def both() -> tuple[Any, Any]:
    theirs = byte_fallback()
    ours = FastTokenizer(
        theirs.backend_tokenizer, theirs.special_tokens_map, chat_template=theirs.chat_template
    )
    return ours, theirs


TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=5,
)
CONTENTS = TEXT | st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}), max_size=2
)
CALL = st.fixed_dictionaries(
    {"function": st.fixed_dictionaries({"name": TEXT, "arguments": VALUES})}
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "tool", "query", "document"])},
        optional={
            "content": CONTENTS | st.none(),
            "tool_calls": st.lists(CALL, max_size=2) | st.none(),
            **dict.fromkeys(
                ("name", "reasoning", "reasoning_content", "thinking"), TEXT | st.none()
            ),
        },
    ),
    min_size=1,
    max_size=4,
)
PROMPT = {"add_generation_prompt": True}
TALK = [
    {"role": "system", "content": "Be <brief> & é."},
    {"role": "user", "content": " Hi "},
    {"role": "assistant", "content": "Hello! ", "reasoning_content": "greet"},
]


@pytest.mark.skipif(version("transformers") < "5.24", reason="ours renders as the newest does")
@pytest.mark.parametrize("name", TEMPLATES)
@given(
    messages=MESSAGES,
    tools=st.none() | st.lists(st.dictionaries(TEXT, VALUES, max_size=2), max_size=2),
    mode=st.sampled_from([{}, PROMPT, {"continue_final_message": True}]),
    variables=st.fixed_dictionaries(
        {}, optional={"enable_thinking": VALUES, "bos_token": TEXT, "documents": VALUES}
    ),
)
@example(messages=TALK, tools=None, mode={}, variables={})
@example(messages=TALK, tools=[{"name": "<f>"}], mode=PROMPT, variables={})
@example(messages=TALK, tools=None, mode={"continue_final_message": True}, variables={})
@example(messages=TALK, tools=None, mode={}, variables={"documents": [{"title": "t"}]})
@settings(max_examples=25, deadline=None)
def test_templates_are_rendered_as_transformers_does(both, name, messages, tools, mode, variables):
    ours, theirs = (
        rendered(each, messages, chat_template=TEMPLATES[name], tools=tools, **mode, **variables)
        for each in both
    )
    assert ours == theirs


def test_the_templates_above_are_rendered(both):
    """So that the comparison is not one of errors alone."""
    ours, _ = both
    failed = {
        name
        for name, template in TEMPLATES.items()
        if rendered(ours, TALK[1:], chat_template=template) is None
    }
    assert failed == {
        *("class", "class of dict", "mutation", "syntax", "undefined"),
        *("underscore", "underscore set"),
    }


def test_a_template_is_chosen_by_name_and_by_tools(both):
    backend = both[0].backend_tokenizer
    ours = FastTokenizer(backend, {}, chat_template={"default": "D", "tool_use": "T"})
    assert rendered(ours, TALK) == "D"
    assert rendered(ours, TALK, tools=[]) == "T"
    assert rendered(ours, TALK, chat_template="tool_use") == "T"
    assert rendered(ours, TALK, chat_template="other") == "other"
    ours.chat_template = {"rag": "R"}
    with pytest.raises(ValueError, match="rag"):
        ours.apply_chat_template(TALK, tokenize=False)
