"""translate_chat: tools, formats and thinking, for models with several chat templates."""

import copy
import dataclasses

import msgspec
import pytest

from core.contract.errors import InvalidRequest
from core.contract.grammar import After, ToolSpec, json_object, tool_calls, tool_calls_in_text
from core.contract.params import Thinking
from core.text.output import OutputAssembler
from schemas.chat import ChatCompletionRequest
from server.apis.openai.chat import translate_chat
from server.generation.model import ServedModel
from server.parsers.base import CallBegin
from server.settings.settings import Settings
from server.translation.tools import select_tools
from tests.support.engines import last, loaded
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
NAMED = {"type": "function", "function": {"name": "ping"}}
FORMAT = {"response_format": {"type": "json_object"}}
OFF = {"chat_template_kwargs": {"enable_thinking": False}}
ON = {"chat_template_kwargs": {"enable_thinking": True}}
CALL = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'


class Translated:
    """The parts of a chat job."""

    def __init__(self, job):
        [self.prompt], [self.params] = job.prompts, job.params
        self.renderer = job.renderer
        self.new_grammars = job.new_grammars
        self.new_parser = job.renderer._options.new_parser


class Model:
    """A model of this chat template."""

    def __init__(self, template, *, special=(), **settings):
        inner = copy.deepcopy(byte_level())
        inner.chat_template = template
        inner.add_special_tokens({"additional_special_tokens": list(special)})
        self.served = ServedModel.of(Settings(**settings), loaded(object(), inner))
        self.tokenizer, self.markup = self.served.tokenizer, self.served.families.markup

    def translate(self, *, allow_template=False, **fields):
        settings = msgspec.structs.replace(
            self.served.settings, trust_request_chat_template=allow_template
        )
        served = dataclasses.replace(self.served, settings=settings)
        return Translated(translate_chat(self.request(**fields), served))

    def request(self, **fields):
        body = {"messages": [USER]} | fields
        return msgspec.json.decode(msgspec.json.encode(body), type=ChatCompletionRequest)

    def refused(self, param, **fields):
        with pytest.raises(InvalidRequest) as caught:
            self.translate(**fields).new_grammars.compile("")
        assert caught.value.param == param
        return caught.value.message

    def message(self, text, **fields):
        """The content, reasoning and names of called functions of an answer with this text."""
        job = self.translate(**fields)
        output = OutputAssembler(self.tokenizer.detokenizer(()), thinking=job.params.thinking)
        for token_id in self.tokenizer.encode(text, add_special_tokens=False):
            output.feed(token_id)
        output.finish()
        shown, thinking, _ = output.take()
        body = job.renderer.whole([last(text=shown, thinking=thinking)])
        message = msgspec.json.decode(body)["choices"][0]["message"]
        calls = [call["function"]["name"] for call in message.get("tool_calls", ())]
        return message["content"], message.get("reasoning"), calls


def test_a_model_without_tools_and_thinking():
    job = Model(PLAIN).translate()
    assert job.new_parser is None
    assert job.params.grammar is None
    assert job.params.thinking is None
    assert job.params.skip_special_tokens


def test_a_response_format_is_the_grammar():
    assert Model(PLAIN).translate(**FORMAT).params.grammar == json_object()


class TestTools:
    def test_auto(self):
        model = Model(HERMES)
        job = model.translate(tools=[TOOL])
        assert job.params.grammar == tool_calls_in_text(_specs(model), model.markup)
        first, second = (job.new_parser() for _ in range(2))
        assert first is not second
        assert isinstance(first.feed(CALL)[0], CallBegin)

    def test_auto_without_a_known_markup_returns_text(self):
        job = Model("{{ tools }}" + PLAIN).translate(tools=[TOOL])
        assert job.params.grammar is None
        assert job.new_parser is None

    def test_required_without_a_known_markup_uses_the_fallback(self):
        model = Model("{{ tools }}" + PLAIN)
        job = model.translate(**REQUIRED)
        assert job.params.grammar == tool_calls(_specs(model), model.markup)
        assert isinstance(job.new_parser().feed(CALL)[0], CallBegin)

    def test_a_template_without_tools(self):
        model = Model(PLAIN, tool_call_parser="none")
        assert "--tool-call-parser generic" in model.refused("tools", tools=[TOOL])
        assert model.translate(tools=[TOOL], tool_choice="none").new_parser is None
        job = model.translate(tools=[TOOL], chat_template=HERMES, allow_template=True)
        assert "ping" in model.tokenizer.decode(job.prompt)

    def test_tools_do_not_hide_that_there_is_no_template(self):
        model = Model(None)
        assert not model.served.takes_messages
        assert "--chat-template" in model.refused("messages", tools=[TOOL])

    @pytest.mark.parametrize("choice", [None, "auto", "required", NAMED])
    def test_a_template_without_tools_gets_them_as_text(self, choice):
        model = Model(PLAIN)
        job = model.translate(tools=[TOOL], tool_choice=choice)
        prompt = model.tokenizer.decode(job.prompt, skip_special_tokens=False)
        assert prompt.startswith("<|im_start|>system\nYou may call functions.")
        assert '{"name": "ping", "parameters": {"type": "object", "properties": {}}}' in prompt
        assert prompt.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant")
        is_forced = choice in ("required", NAMED)
        make, more = (tool_calls, {}) if is_forced else (tool_calls_in_text, {})
        if choice == NAMED:
            more = {"is_single": True}
        assert job.params.grammar == make(_specs(model), model.markup, **more)
        for text in (CALL, '{"name": "ping", "arguments": {}}'):
            assert model.message(text, tools=[TOOL]) == (None, None, ["ping"])

    def test_a_conversation_has_the_same_turns_without_tools(self):
        """So that a last turn without tools finds its prefix in the cache."""
        model = Model(PLAIN)
        call = {"id": "c", "function": {"name": "ping", "arguments": "{}"}}
        messages = [
            USER,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "pong"},
        ]
        prompt = model.tokenizer.decode(
            model.translate(messages=messages).prompt, skip_special_tokens=False
        )
        result = "<|im_start|>user\n<tool_response>\npong\n</tool_response><|im_end|>\n"
        assert prompt == (
            "<|im_start|>user\nhi<|im_end|>\n"
            f"<|im_start|>assistant\n{CALL}<|im_end|>\n{result}<|im_start|>assistant"
        )

    def test_choice_none(self):
        job = Model(HERMES).translate(tools=[TOOL], tool_choice="none")
        assert job.new_parser is None
        assert job.params.grammar is None
        assert job.params.skip_special_tokens

    def test_tools_are_in_the_prompt(self):
        model = Model(HERMES)
        prompt = model.tokenizer.decode(model.translate(tools=[TOOL]).prompt)
        assert '"name": "ping"' in prompt
        prompt = model.tokenizer.decode(model.translate(tools=[TOOL], tool_choice="none").prompt)
        assert "ping" not in prompt

    def test_special_tokens_stay_in_the_text_if_calls_contain_them(self):
        model = Model(HERMES, special=["<tool_call>"])
        assert not model.translate(tools=[TOOL]).params.skip_special_tokens
        assert model.translate().params.skip_special_tokens
        assert Model(HERMES).translate(tools=[TOOL]).params.skip_special_tokens

    def test_errors_name_the_tools_or_the_format(self):
        model = Model(HERMES)
        bad = {"type": "object", "properties": {"a": {"type": "thing"}}}
        tool = {"type": "function", "function": {"name": "f", "parameters": bad, "strict": True}}
        model.refused("tools", tools=[tool])
        model.refused("tools", tools=[tool], **FORMAT)
        spec = {"name": "n", "schema": bad, "strict": True}
        strict = {"response_format": {"type": "json_schema", "json_schema": spec}}
        model.refused("response_format", tools=[TOOL], **strict)
        model.refused("response_format", **strict)
        assert model.translate(tools=[tool], tool_choice="none").params.grammar is None


def _specs(model):
    request = model.request(tools=[TOOL])
    return [ToolSpec(tool.name, tool.parameters) for tool in select_tools(request).callable]


class TestThinking:
    def test_opened_by_the_prompt(self):
        model = Model(OPEN)
        job = model.translate(thinking_token_budget=7, **FORMAT)
        end_token_ids = model.tokenizer.encode("</think>", add_special_tokens=False)
        assert job.params.thinking == Thinking(
            begin="<think>",
            end="</think>",
            end_token_ids=tuple(end_token_ids),
            is_open=True,
            budget=7,
            is_separate=True,
        )
        assert job.params.grammar == After("</think>", json_object())
        assert model.message("Hm.</think>{}") == ("{}", "Hm.", [])

    def test_opened_by_the_model(self):
        job = Model(BY_DEFAULT).translate(**FORMAT)
        assert job.params.thinking is not None
        assert not job.params.thinking.is_open
        assert job.params.grammar == After("</think>", json_object(), begin="<think>")

    def test_not_turned_on(self):
        model = Model(ON_DEMAND)
        job = model.translate(**FORMAT)
        assert job.params.thinking is None
        assert job.params.grammar == json_object()
        assert model.translate(**ON, **FORMAT).params.grammar == After("</think>", json_object())
        assert model.message("<think>Hm.</think>{}", **FORMAT) == ("<think>Hm.</think>{}", None, [])
        assert model.translate(reasoning_effort="low").params.thinking.is_open

    def test_thinking_that_was_not_turned_on_is_still_reported(self):
        model = Model(ON_DEMAND)
        thinking = model.translate().params.thinking
        assert (thinking.is_expected, thinking.is_separate) == (False, True)
        assert model.message("<think>Hm.</think>Hi") == ("Hi", "Hm.", [])
        assert model.translate(separate_reasoning=False).params.thinking is None

    def test_ended_by_the_prompt(self):
        job = Model(BY_DEFAULT).translate(**OFF, **FORMAT)
        assert job.params.thinking is None
        assert job.params.grammar == json_object()

    def test_calls_come_after_the_thinking(self):
        model = Model(BY_DEFAULT)
        calls = tool_calls(_specs(model), model.markup)
        assert model.translate(**REQUIRED).params.grammar == After(
            "</think>", calls, begin="<think>"
        )
        text = f"<think>{CALL}</think>{CALL}"
        assert model.message(text, **REQUIRED) == (None, CALL, ["ping"])

    def test_without_separation_it_stays_in_the_text(self):
        model = Model(OPEN)
        job = model.translate(separate_reasoning=False)
        assert job.params.thinking is not None
        text = "Hm.</think>\nHi"
        assert model.message(text, separate_reasoning=False) == (text, None, [])

    def test_hidden_thinking_is_removed(self):
        text = "Hm.</think>\nHi"
        assert Model(OPEN).message(text, include_reasoning=False) == ("Hi", None, [])

    def test_special_tokens_stay_in_the_text_if_they_are_tags(self):
        template = PLAIN + "[THINK][/THINK]"
        model = Model(template, special=["[THINK]", "[/THINK]"], reasoning_parser="mistral")
        job = model.translate(chat_template=OPEN.replace("<think>", "[THINK]"), allow_template=True)
        assert job.params.thinking is not None
        assert not job.params.skip_special_tokens
        assert Model(OPEN).translate().params.skip_special_tokens

    @pytest.mark.parametrize("budget", [None, -1])
    def test_without_a_budget(self, budget):
        assert Model(OPEN).translate(thinking_token_budget=budget).params.thinking.budget is None
        assert Model(PLAIN).translate(thinking_token_budget=budget).params.thinking is None

    def test_a_budget_for_a_model_that_does_not_think_is_refused(self):
        Model(PLAIN).refused("thinking_token_budget", thinking_token_budget=5)
        Model(OPEN, reasoning_parser="none").refused(
            "thinking_token_budget", thinking_token_budget=5
        )


def test_max_tokens():
    model = Model(PLAIN)
    job = model.translate()
    assert job.params.max_tokens == 512 - len(job.prompt)
    assert model.translate(max_tokens=5).params.max_tokens == 5
    assert model.translate(max_tokens=5, max_completion_tokens=6).params.max_tokens == 6
    model.refused("messages", max_tokens=5000)
    assert model.translate(max_tokens=-1).params.max_tokens == 512 - len(job.prompt)
    for name in ("max_tokens", "max_completion_tokens"):
        assert "at least 1, or -1" in model.refused(name, **{name: 0})


def test_no_stop_string_cuts_a_call_that_must_come():
    model = Model(HERMES)
    assert model.translate(tools=[TOOL], stop="x").params.stop == ("x",)
    assert model.translate(**REQUIRED, stop="x").params.stop == ()
