from pathlib import Path

import pytest

import core.builtin_model
from server.parsers.tool import TOOL_PARSERS, detect
from server.parsers.tool.parser import CallParser
from tests.support.each import each

LLAMA = """'Respond in the format {"name": function name, "parameters": dictionary of argument'"""


@each(
    ("template", "family"),
    [
        (None, None),
        ("{% for message in messages %}{{ message.content }}{% endfor %}", None),
        ('\'<tool_call>\\n{"name": "\'', "hermes"),
        ("<tool_call> <function=a> <parameter=b>", "qwen3_coder"),
        ("<tool_call>{{ name }} <arg_key>", None),
        ("'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>'", "deepseek"),  # noqa: RUF001
        ("'[TOOL_CALLS]['", "mistral"),
        ("[func_name1(params_name1=params_value1)]", "pythonic"),
        (LLAMA, "llama3_json"),
        ("'<|python_tag|>' '\"parameters\": '", "llama3_json"),
        ("'<|python_tag|>'", None),
    ],
)
def test_a_family_is_detected_by_its_chat_template(template, family):
    assert detect(template) == family


def test_the_built_in_model_uses_the_hermes_format():
    folder = Path(core.builtin_model.__file__).parent
    template = (folder / "weights" / "chat_template.jinja").read_text(encoding="utf-8")
    assert detect(template) == "hermes"


@pytest.mark.parametrize("name", TOOL_PARSERS)
def test_every_family_has_a_parser(name):
    family = TOOL_PARSERS[name]
    assert issubclass(family, CallParser)
    assert family.openings
    assert family.markers
