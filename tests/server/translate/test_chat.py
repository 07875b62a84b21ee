"""plan_chat: what tools, formats and thinking come to, for models of several kinds."""

import copy

import msgspec
import pytest

from core.contract.errors import InvalidRequest
from core.contract.grammar import After, ToolSpec, json_object, tool_calls, tool_calls_in_text
from core.contract.params import Thinking
from schemas.chat import ChatCompletionRequest
from server.families import Families
from server.parsers.base import CallBegin, Content, Reasoning
from server.settings import Settings
from server.translate.chat import plan_chat
from server.translate.tools import tool_plan
from tests.support.engines import loaded
from tests.support.tokenizers import byte_level

USER = {"role": "user", "content": "hi"}
TALK = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
PLAIN = TALK + "<|im_start|>assistant\n"
HERMES = "{{ tools | tojson }}<tool_call>" + PLAIN
OPEN = PLAIN + "<think>\n"
ON_DEMAND = PLAIN + "{% if enable_thinking %}<think>\n{% endif %}"
BY_DEFAULT = (
    HERMES
    + "{% if enable_thinking is defined and not enable_thinking %}"
    + "<think>\n\n</think>\n\n{% endif %}"
)
TOOL = {"type": "function", "function": {"name": "ping"}}
REQUIRED = {"tools": [TOOL], "tool_choice": "required"}
FORMAT = {"response_format": {"type": "json_object"}}
OFF = {"chat_template_kwargs": {"enable_thinking": False}}
ON = {"chat_template_kwargs": {"enable_thinking": True}}
CALL = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'


class Model:
    """A model of this chat template."""

    def __init__(self, template, *, special=(), **settings):
        inner = copy.deepcopy(byte_level())
        inner.chat_template = template
        inner.add_special_tokens({"additional_special_tokens": list(special)})
        self.loaded = loaded(object(), inner)
        self.families = Families.of(Settings(**settings), self.loaded.tokenizer)

    def plan(self, *, allow_template=False, **fields):
        return plan_chat(
            self.request(**fields), self.loaded, self.families, allow_template=allow_template
        )

    def request(self, **fields):
        body = {"messages": [USER]} | fields
        return msgspec.json.decode(msgspec.json.encode(body), type=ChatCompletionRequest)

    def refused(self, param, **fields):
        with pytest.raises(InvalidRequest) as caught:
            self.plan(**fields)
        assert caught.value.param == param
        return caught.value.message

    def parse(self, text, **fields):
        parser = self.plan(**fields).new_parser()
        return parser.feed(text) + parser.finish()


def test_nothing_special():
    plan = Model(PLAIN).plan()
    assert plan.new_parser is None
    assert plan.params.grammar is None
    assert plan.params.thinking is None
    assert plan.params.skip_special_tokens
    assert not plan.tools.callable


def test_a_format():
    assert Model(PLAIN).plan(**FORMAT).params.grammar == json_object()


class TestTools:
    def test_auto(self):
        model = Model(HERMES)
        plan = model.plan(tools=[TOOL])
        assert plan.params.grammar == tool_calls_in_text(_specs(model), model.families.markup)
        first, second = (plan.new_parser() for _ in range(2))
        assert first is not second
        assert isinstance(first.feed(CALL)[0], CallBegin)

    def test_auto_where_no_way_is_known(self):
        """Nobody knows how a call would begin: what comes is text."""
        plan = Model("{{ tools }}" + PLAIN).plan(tools=[TOOL])
        assert not plan.tools.callable
        assert plan.params.grammar is None
        assert plan.new_parser is None

    def test_required_where_no_way_is_known(self):
        model = Model("{{ tools }}" + PLAIN)
        plan = model.plan(**REQUIRED)
        assert plan.params.grammar == tool_calls(_specs(model), model.families.markup)
        assert isinstance(plan.new_parser().feed(CALL)[0], CallBegin)

    def test_a_template_without_tools(self):
        model = Model(PLAIN)
        model.refused("tools", tools=[TOOL])
        assert model.plan(tools=[TOOL], tool_choice="none").new_parser is None
        plan = model.plan(tools=[TOOL], chat_template=HERMES, allow_template=True)
        assert "ping" in model.loaded.tokenizer.decode(plan.prompt)

    def test_none(self):
        plan = Model(HERMES).plan(tools=[TOOL], tool_choice="none")
        assert plan.new_parser is None
        assert plan.params.grammar is None
        assert plan.params.skip_special_tokens

    def test_tools_are_shown(self):
        model = Model(HERMES)
        prompt = model.loaded.tokenizer.decode(model.plan(tools=[TOOL]).prompt)
        assert '"name": "ping"' in prompt
        prompt = model.loaded.tokenizer.decode(model.plan(tools=[TOOL], tool_choice="none").prompt)
        assert "ping" not in prompt

    def test_special_tokens_are_shown_where_calls_are_made_of_them(self):
        model = Model(HERMES, special=["<tool_call>"])
        assert not model.plan(tools=[TOOL]).params.skip_special_tokens
        assert model.plan().params.skip_special_tokens
        assert Model(HERMES).plan(tools=[TOOL]).params.skip_special_tokens

    def test_which_of_the_two_is_at_fault(self):
        model = Model(HERMES)
        bad = {"type": "object", "properties": {"a": {"type": "thing"}}}
        tool = {"type": "function", "function": {"name": "f", "parameters": bad, "strict": True}}
        model.refused("tools", tools=[tool])
        model.refused("tools", tools=[tool], **FORMAT)
        model.refused("guided_json", tools=[TOOL], guided_json=bad)
        model.refused("guided_json", guided_json=bad)
        assert model.plan(tools=[tool], tool_choice="none").params.grammar is None


def _specs(model):
    request = model.request(tools=[TOOL])
    return [ToolSpec(tool.name, tool.parameters) for tool in tool_plan(request).callable]


class TestThinking:
    def test_where_the_prompt_opens_it(self):
        model = Model(OPEN)
        plan = model.plan(thinking_token_budget=7, **FORMAT)
        end_token_ids = model.loaded.tokenizer.encode("</think>", add_special_tokens=False)
        assert plan.params.thinking == Thinking(
            begin="<think>",
            end="</think>",
            end_token_ids=tuple(end_token_ids),
            is_open=True,
            budget=7,
        )
        assert plan.params.grammar == After("</think>", json_object())
        assert model.parse("Hm.</think>{}") == [Reasoning("Hm."), Content("{}")]

    def test_where_the_model_may_open_it(self):
        plan = Model(BY_DEFAULT).plan(**FORMAT)
        assert plan.params.thinking is not None
        assert not plan.params.thinking.is_open
        assert plan.params.grammar == After("</think>", json_object(), begin="<think>")

    def test_where_it_was_not_asked_for(self):
        model = Model(ON_DEMAND)
        plan = model.plan(**FORMAT)
        assert plan.params.thinking is None
        assert plan.params.grammar == json_object()
        assert model.plan(**ON, **FORMAT).params.grammar == After("</think>", json_object())
        assert model.plan(reasoning_effort="low").params.thinking.is_open

    def test_where_the_prompt_has_ended_it(self):
        plan = Model(BY_DEFAULT).plan(**OFF, **FORMAT)
        assert plan.params.thinking is None
        assert plan.params.grammar == json_object()

    def test_calls_come_after_it(self):
        model = Model(BY_DEFAULT)
        calls = tool_calls(_specs(model), model.families.markup)
        assert model.plan(**REQUIRED).params.grammar == After("</think>", calls, begin="<think>")
        reasoning, begin, _ = model.parse(f"<think>{CALL}</think>{CALL}", **REQUIRED)
        assert reasoning == Reasoning(CALL)
        assert isinstance(begin, CallBegin)

    def test_unseparated(self):
        model = Model(OPEN)
        plan = model.plan(separate_reasoning=False)
        assert plan.new_parser is None
        assert plan.params.thinking is not None

    def test_hidden(self):
        assert Model(OPEN).plan(include_reasoning=False).new_parser is not None

    def test_special_tokens_are_shown_where_its_tags_are_such(self):
        template = PLAIN + "[THINK][/THINK]"
        model = Model(template, special=["[THINK]", "[/THINK]"], reasoning_parser="mistral")
        plan = model.plan(chat_template=OPEN.replace("<think>", "[THINK]"), allow_template=True)
        assert plan.params.thinking is not None
        assert not plan.params.skip_special_tokens
        assert Model(OPEN).plan().params.skip_special_tokens

    @pytest.mark.parametrize("budget", [None, -1])
    def test_no_budget(self, budget):
        assert Model(OPEN).plan(thinking_token_budget=budget).params.thinking.budget is None
        assert Model(PLAIN).plan(thinking_token_budget=budget).params.thinking is None

    def test_a_budget_for_a_model_that_does_not_think(self):
        Model(PLAIN).refused("thinking_token_budget", thinking_token_budget=5)
        Model(OPEN, reasoning_parser="none").refused(
            "thinking_token_budget", thinking_token_budget=5
        )


def test_length():
    model = Model(PLAIN)
    plan = model.plan()
    assert plan.params.max_tokens == 512 - len(plan.prompt)
    assert model.plan(max_tokens=5).params.max_tokens == 5
    assert model.plan(max_tokens=5, max_completion_tokens=6).params.max_tokens == 6
    model.refused("messages", max_tokens=5000)
