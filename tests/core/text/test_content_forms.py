"""Templates get contents in the form that they read."""

import copy

import pytest

from core.contract.errors import InvalidRequest
from core.text.content_forms import forms_of, parts_of
from core.text.tokenizer import Tokenizer
from tests.support.each import each
from tests.support.tokenizers import byte_level

TEXT = "{{ m.content }}"
PARTS = "{% for c in m.content %}{% if c.type == 'text' %}{{ c.text }}{% endif %}{% endfor %}"
BOTH = f"{{% if m.content is string %}}{TEXT}{{% else %}}{PARTS}{{% endif %}}"
FIRST = "{{ m.content[0].text }}"
SMOL = "{% if m.content[0]['type'] == 'image' %}:{% else %}: {% endif %}" + PARTS
JSON = "{{ m.content | tojson }}"
TRIMMED = "{{ m.content | trim }}"
SPLIT = "{{ m.content.split('</think>')[-1] }}"
UPPER = "{{ m.content | upper }}"


def turns(body):
    return f"{{% for m in messages %}}<{{{{ m.role }}}}>{body};{{% endfor %}}"


def by_role(**bodies):
    cases = "".join(
        f"{{% if m.role == '{role}' %}}{body}{{% endif %}}" for role, body in bodies.items()
    )
    return turns(cases)


def tokenizer_of(template):
    inner = copy.deepcopy(byte_level())
    inner.chat_template = template
    return Tokenizer(inner)


def transformers_own(template, messages):
    inner = copy.deepcopy(byte_level())
    inner.chat_template = template
    return inner.apply_chat_template(messages, tokenize=False)


AS_LINES = {"system": True, "user": False, "assistant": True, "tool": False}
"""Whether parts of a role are lines of a text in ``test_each_role_has_its_own_form``."""
TWO = parts_of(["hello", "world"])


@each(
    ("body", "of_text", "of_parts"),
    [
        (TEXT, "hello", "hello\nworld"),
        (PARTS, "hello", "helloworld"),
        (BOTH, "hello", "helloworld"),
        (FIRST, "hello", "hello"),
        (SMOL, ": hello", ": helloworld"),
        (JSON, '"hello"', '"hello\\nworld"'),
        (TRIMMED, "hello", "hello\nworld"),
        (SPLIT, "hello", "hello\nworld"),
        (UPPER, "HELLO", "HELLO\nWORLD"),
    ],
)
@pytest.mark.parametrize("is_given", [False, True])
@pytest.mark.parametrize("role", ["user", "system", "assistant", "tool"])
def test_a_template_gets_what_it_reads(role, is_given, body, of_text, of_parts):
    template = turns(body)
    tokenizer = tokenizer_of(TEXT if is_given else template)
    for content, expected in (("hello", of_text), (TWO, of_parts)):
        rendered = tokenizer.render_chat(
            [{"role": role, "content": content}], chat_template=template if is_given else None
        )
        assert rendered == f"<{role}>{expected};"


@pytest.mark.parametrize("body", [PARTS, BOTH])
def test_parts_are_rendered_as_transformers_does(body):
    messages = [{"role": "user", "content": TWO}, {"role": "assistant", "content": TWO[:1]}]
    template = turns(body)
    assert tokenizer_of(template).render_chat(messages) == transformers_own(template, messages)


def test_each_role_has_its_own_form():
    tokenizer = tokenizer_of(by_role(system=TEXT, user=BOTH, assistant=SPLIT, tool=PARTS))

    def rendered(content):
        messages = [{"role": role, "content": content} for role in AS_LINES]
        return tokenizer.render_chat(messages)

    assert rendered("hello") == "".join(f"<{role}>hello;" for role in AS_LINES)
    assert rendered(TWO) == "".join(
        f"<{role}>hello{chr(10) * in_lines}world;" for role, in_lines in AS_LINES.items()
    )


def test_empty_contents_have_a_part_that_can_be_read():
    tokenizer = tokenizer_of(turns(FIRST))
    for content in ("", []):
        assert tokenizer.render_chat([{"role": "user", "content": content}]) == "<user>;"


def test_an_empty_list_is_an_empty_text_where_texts_are_read():
    for body in (TEXT, BOTH):
        rendered = tokenizer_of(turns(body)).render_chat([{"role": "user", "content": []}])
        assert rendered == "<user>;"


def test_an_answer_in_parts_is_continued():
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "one "}]
    rendered = tokenizer_of(turns(PARTS)).render_chat(
        messages, add_generation_prompt=False, continue_final_message=True
    )
    assert rendered == "<user>hi;<assistant>one "


def test_special_text_in_parts_stays_text():
    tokenizer = tokenizer_of(turns(PARTS))
    ids = tokenizer.encode_chat([{"role": "user", "content": parts_of(["<|im_end|>"])}])
    assert tokenizer.eos_token_id not in ids
    assert tokenizer.decode(ids) == "<user><|im_end|>;"


def test_a_role_that_is_refused_is_read_as_the_user_s():
    def render(messages):
        if messages[0]["role"] == "system":
            raise InvalidRequest("no")
        return "".join(part["text"] for part in messages[0]["content"] if part != str(part))

    assert forms_of(render) == dict.fromkeys(AS_LINES, "parts")


def test_a_template_that_shows_nothing_gets_texts():
    assert set(forms_of(lambda _messages: "").values()) == {"text"}
