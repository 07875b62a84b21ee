"""A family's parser reads, and its grammar allows, calls written with the family's markup."""

import itertools
import json

import pytest

from core.contract.grammar import ToolSpec, after, tool_calls, tool_calls_in_text
from core.text.tokenizer import Tokenizer
from server.parsers.tool import TOOL_PARSERS
from tests.server.parsers.properties import TOOLS, check_splits
from tests.support.constrained import Decoder
from tests.support.each import each
from tests.support.tokenizers import byte_level

TEMPLATES = {
    "mistral": ["", "[TOOL_CALLS] and [ARGS]"],
    "deepseek": ["", "```json"],
}
FORMS = [(family, t) for family in TOOL_PARSERS for t in TEMPLATES.get(family, [""])]

CALLS = [
    [("get_weather", {"city": "Paris"})],
    [("get_weather", {"city": 'a "b" \\ é 🙂', "days": 3, "exact": True})],
    [("ping", {})],
    [("get_weather", {"city": "Rome"}), ("ping", {})],
    [("ping", {}), ("get_weather", {"city": "", "days": -2}), ("ping", {})],
]


def specs():
    return [ToolSpec(tool.name, tool.parameters) for tool in TOOLS]


def written(markup, calls):
    """Calls in this markup."""
    texts = []
    for name, arguments in calls:
        match markup.arguments:
            case "json":
                text = json.dumps(arguments, ensure_ascii=False)
            case "xml":
                text = "".join(
                    markup.xml_before.replace("{name}", key) + xml_value(value) + markup.xml_after
                    for key, value in arguments.items()
                )
            case "keywords":
                text = ", ".join(
                    f"{key}={json.dumps(value, ensure_ascii=False)}"
                    for key, value in arguments.items()
                )
        texts.append(markup.before.replace("{name}", name) + text + markup.after)
    return markup.opening + markup.between.join(texts) + markup.closing


def xml_value(value):
    return value if isinstance(value, str) else json.dumps(value)


@pytest.fixture(params=FORMS, ids=lambda form: f"{form[0]}-{form[1]}")
def form(request):
    family, template = request.param
    return family, TOOL_PARSERS[family].markup_for(template)


@pytest.fixture(scope="module")
def decoder():
    return Decoder(Tokenizer(byte_level()))


def parser_of(family):
    numbers = itertools.count()
    return TOOL_PARSERS[family](TOOLS, new_id=lambda: f"call_{next(numbers)}")


@each("calls", CALLS)
@each("before", ["", "Well. "])
def test_the_parser_reads_calls_written_with_the_markup(form, calls, before):
    family, markup = form
    text = before + written(markup, calls)
    message = check_splits(lambda: parser_of(family), text, num_random=3)
    assert [(call.name, json.loads(call.arguments)) for call in message.calls] == calls
    assert message.content == (before.strip() or None)


@pytest.mark.slow
@each("calls", CALLS)
def test_the_grammar_allows_calls_written_with_the_markup(form, calls, decoder):
    _, markup = form
    text = written(markup, calls)
    for grammar in (tool_calls(specs(), markup), tool_calls_in_text(specs(), markup)):
        assert decoder.accepts(grammar, text)
    thought = "<think>Well, [ { < \n</think>\n\n"
    assert decoder.accepts(after(tool_calls(specs(), markup), begin="<think>"), thought + text)


def test_the_grammar_allows_nothing_but_calls(form, decoder):
    family, markup = form
    call = ("get_weather", {"city": "Paris"})
    right = written(markup, [call])
    required, single = (
        tool_calls(specs(), markup, is_single=is_single) for is_single in (False, True)
    )
    for wrong in (
        "",
        "Well. " + right,
        right + " Well.",
        written(markup, [("get_wether", {})]),
        written(markup, [("get_weather", {"city": 5})]),
        right[:-1],
    ):
        if family == "qwen3_coder" and "5" in wrong:
            continue  # its strings may be any text
        assert not decoder.accepts(required, wrong), wrong
    assert decoder.accepts(single, right)
    assert not decoder.accepts(single, written(markup, [call, call]))


def test_text_without_calls_is_unconstrained(form, decoder):
    _, markup = form
    for text in ("", "Well.", "Hello, world!\n\nIt is 5 < 6.", "ça va 🙂"):
        assert decoder.accepts(tool_calls_in_text(specs(), markup), text)


def test_an_opening_must_begin_a_call(form, decoder):
    _, markup = form
    in_text = tool_calls_in_text(specs(), markup)
    assert not decoder.accepts(in_text, markup.trigger)
    assert not decoder.accepts(in_text, markup.trigger + " nonsense")


def test_text_may_precede_calls(form, decoder):
    _, markup = form
    text = "Well. " + written(markup, [("ping", {})])
    in_text = tool_calls_in_text(specs(), markup)
    assert decoder.accepts(in_text, text)
