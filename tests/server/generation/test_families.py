import copy

import pytest

from core.text.chat_templates import TEMPLATE_NAMES, named_template
from core.text.tokenizer import Tokenizer
from server.generation.model import FALLBACK_TOOLS, Families
from server.parsers import tool
from server.settings.settings import Settings
from tests.support.tokenizers import byte_level

PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}"
HERMES = PLAIN + "{{ tools }}<tool_call>"
OPENED = PLAIN + "<think>\n"
ASKED = PLAIN + "{% if enable_thinking %}<think>\n{% endif %}"
UNASKED = (
    PLAIN + "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
)


def families(template, **settings):
    inner = copy.deepcopy(byte_level())
    inner.chat_template = template
    return Families.of(Settings(**settings), Tokenizer(inner))


@pytest.mark.parametrize(
    ("template", "name", "thinking"),
    [
        (PLAIN, "generic", None),
        ("", "generic", None),
        (PLAIN + "{{ tools }}", None, None),
        (HERMES, "hermes", None),
        (HERMES + "<think>", "hermes", "think"),
        ("[TOOL_CALLS] [THINK]", "mistral", "mistral"),
        (None, None, None),
    ],
)
def test_families_are_detected_from_the_template(template, name, thinking):
    found = families(template)
    assert (found.tool, found.reasoning) == (name, thinking)


def test_a_template_for_tools_of_its_own_is_the_one_that_counts():
    found = families({"default": PLAIN, "tool_use": HERMES})
    assert (found.tool, found.writes_tools, found.template_shows_tools) == ("hermes", False, True)
    assert families({"default": PLAIN}).writes_tools


def test_the_operator_s_choice_overrides_detection():
    found = families(HERMES, tool_call_parser="pythonic", reasoning_parser="think")
    assert (found.tool, found.reasoning) == ("pythonic", "think")
    found = families(HERMES + "<think>", tool_call_parser="none", reasoning_parser="none")
    assert (found.tool, found.reasoning) == (None, None)
    assert found.thinking_tags is None


@pytest.mark.parametrize("name", tool.TOOL_PARSERS)
def test_markup_and_parser_belong_together(name):
    found = families(HERMES, tool_call_parser=name)
    assert found.call_parser is tool.TOOL_PARSERS[name]
    assert found.markup == tool.TOOL_PARSERS[name].markup_for(HERMES)


@pytest.mark.parametrize(
    ("template", "parser", "writes"),
    [
        (PLAIN, "auto", True),
        (PLAIN, "generic", True),
        (HERMES, "generic", True),
        (HERMES, "auto", False),
        (PLAIN, "none", False),
        (PLAIN, "hermes", True),
        (PLAIN, "pythonic", False),
        (PLAIN + "[TOOL_CALLS]", "auto", True),
        (PLAIN + "{{ tools }}", "auto", False),
        (None, "auto", False),
        (None, "generic", False),
    ],
)
def test_whether_tools_are_text_of_ordinary_turns(template, parser, writes):
    assert families(template, tool_call_parser=parser).writes_tools is writes


@pytest.mark.parametrize("name", TEMPLATE_NAMES)
def test_templates_with_names_take_tools_as_text(name):
    found = families(named_template(name))
    assert (found.tool, found.reasoning) == ("generic", None)
    assert found.writes_tools
    assert found.takes_system


@pytest.mark.parametrize(
    ("template", "takes"),
    [
        (PLAIN, True),
        (
            "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + PLAIN,
            False,
        ),
        ("{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}", False),
        (None, False),
    ],
)
def test_whether_system_turns_are_shown(template, takes):
    assert families(template).takes_system is takes


def test_without_a_family_calls_use_the_fallback():
    found = families(PLAIN, tool_call_parser="none")
    assert found.call_parser is tool.TOOL_PARSERS[FALLBACK_TOOLS]
    assert found.markup == tool.TOOL_PARSERS[FALLBACK_TOOLS].markup


def test_thinking_tags():
    assert families(PLAIN + "<think>").thinking_tags == ("<think>", "</think>")


@pytest.mark.parametrize(
    ("template", "shows"), [(HERMES, True), (PLAIN, False), (None, False), ("", False)]
)
def test_whether_the_template_shows_tools(template, shows):
    assert families(template).template_shows_tools is shows


@pytest.mark.parametrize(
    ("template", "takes"),
    [
        (PLAIN, True),
        ("{{ messages[0].content }}", False),
        ("{% if messages[2].role == 'system' %}{{ raise_exception('no') }}{% endif %}", False),
        (None, False),
    ],
)
def test_whether_a_system_message_may_come_later(template, takes):
    assert families(template).takes_late_system is takes


@pytest.mark.parametrize(
    ("template", "by_default"),
    [
        (PLAIN, True),
        (OPENED, True),
        (ASKED, False),
        (UNASKED, True),
        (None, True),
        ("{{ raise_exception('no') }}", True),
    ],
)
def test_whether_it_thinks_by_default(template, by_default):
    assert families(template).thinks_by_default is by_default
