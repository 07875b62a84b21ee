"""The token that ends an answer, read from the chat template."""

import copy
from functools import partial

import pytest

from core.text.chat_templates import named_template
from core.text.tokenizer import Tokenizer
from tests.support.each import each
from tests.support.tokenizers import byte_level

SPECIAL = ["<|begin|>", "<|im_start|>", "<|im_end|>", "<|end|>", "<|user|>", "<|assistant|>"]
BOS = "<|begin|>"


def of(template, **special):
    inner = copy.deepcopy(byte_level())
    inner.add_special_tokens({"additional_special_tokens": SPECIAL, "bos_token": BOS, **special})
    inner.chat_template = template
    return Tokenizer(inner)


def end_of(template):
    """The text of the only end token beside EOS, which is another one."""
    tokenizer = of(template, eos_token="<|endoftext|>")
    ends = {tokenizer.token_text(token_id) for token_id in tokenizer.end_token_ids}
    assert "<|endoftext|>" in ends
    return ends - {"<|endoftext|>"}


def turns(body, start="", end=""):
    return f"{start}{{% for m in messages %}}{body}{{% endfor %}}{end}"


GENERATION = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
CHATML = turns("<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n", end=GENERATION)
PARTS = turns(
    "<|im_start|>{{ m.role }}\n{% for c in m.content if c.type == 'text' %}{{ c.text }}{% endfor %}"
    "<|im_end|>\n",
    end=GENERATION,
)
BETWEEN = turns(
    "<|im_start|>{{ m.role }}\n{{ m.content }}{% if not loop.last %}<|im_end|>{% endif %}\n",
    end=GENERATION,
)
ALWAYS = turns(
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n", end="<|im_start|>assistant\n"
)
OPEN_ONLY = turns("<|im_start|>{{ m.role }}\n{{ m.content }}\n", end=GENERATION)
BY_ROLE = turns(
    "<|{{ m.role }}|>\n{{ m.content }}\n",
    start="{{ bos_token }}",
    end="{% if add_generation_prompt %}<|assistant|>{% endif %}",
)
BOS_BETWEEN = turns(
    "{% if m.role == 'user' %}{{ bos_token }}[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }} {% endif %}"
)
PHI = turns("<|{{ m.role }}|>\n{{ m.content }}<|end|>\n", end="{{ eos_token }}")
NOT_SPECIAL = turns("{{ m.role }}: {{ m.content }}</tag>\n")
REFUSES = "{{ raise_exception('no') }}"
NEEDS_SYSTEM = "{% if messages[0].role != 'system' %}{{ raise_exception('no') }}{% endif %}"


@each(
    ("template", "expected"),
    [
        (CHATML, {"<|im_end|>"}),
        (PARTS, {"<|im_end|>"}),
        (BETWEEN, {"<|im_end|>"}),
        (ALWAYS, {"<|im_end|>"}),
        (PHI, {"<|end|>"}),
        (OPEN_ONLY, set()),
        (BY_ROLE, set()),
        (BOS_BETWEEN, set()),
        (NOT_SPECIAL, set()),
        (REFUSES, set()),
        (NEEDS_SYSTEM, set()),
        ("", set()),
    ],
)
def test_the_token_right_after_an_answer_ends_it(template, expected):
    assert end_of(template) == expected


@pytest.mark.parametrize("name", ["chatml", "phi3"])
def test_named_templates_have_their_own_token(name):
    assert end_of(named_template(name)) == {{"chatml": "<|im_end|>", "phi3": "<|end|>"}[name]}


def test_a_token_that_the_tokenizer_lacks_is_none():
    assert end_of(named_template("llama3")) == set()


def test_the_template_of_tools_counts_too():
    both = {"default": CHATML, "tool_use": CHATML.replace("<|im_end|>", "<|end|>")}
    assert end_of(both) == {"<|im_end|>", "<|end|>"}


def test_without_a_template_there_is_the_tokenizer_s_own():
    assert end_of(None) == set()


def test_texts_of_special_tokens_have_their_ids():
    tokenizer = of(CHATML)
    [end] = tokenizer.special_ids_of(["<|end|>", "end", "<tool_call>", "<|end|>!"])
    assert tokenizer.special_ids_of(["<|end|>"]) == {end: "<|end|>"}
    assert partial(tokenizer.decode, [end])(skip_special_tokens=False) == "<|end|>"
