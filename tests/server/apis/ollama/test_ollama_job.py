"""Ollama's requests become the jobs of the same chat, or of the same text."""

import copy
from functools import partial

import msgspec
import pytest

from core.contract.errors import InvalidRequest, RequestCancelled
from core.contract.grammar import json_object, json_schema
from schemas.chat import ChatCompletionRequest
from schemas.ollama import (
    OllamaChatRequest,
    OllamaFunctionCall,
    OllamaGenerateRequest,
    OllamaMessage,
    OllamaToolCall,
)
from server.apis.ollama.models import local_model, running_model, shown_model
from server.apis.ollama.request import chat_messages, translate_chat, translate_generate
from server.apis.openai.chat import translate_chat as translate_openai
from server.generation.model import ServedModel
from server.settings.settings import Settings
from tests.support.engines import loaded
from tests.support.tokenizers import CHATML, byte_level

THINKS = CHATML.replace("{% if enable_thinking %}<think>{% endif %}", "") + (
    "{% if enable_thinking %}<think>\n{% endif %}"
)
USER = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}


def model(template=CHATML, **settings):
    inner = copy.deepcopy(byte_level())
    inner.chat_template = template
    return ServedModel.of(Settings(**settings), loaded(object(), inner, architecture="qwen3"))


def decoded(type_, **fields):
    return msgspec.json.decode(msgspec.json.encode(fields), type=type_)


def chat(template=CHATML, **fields):
    request = decoded(OllamaChatRequest, **({"messages": USER} | fields))
    return translate_chat(request, model(template))


def generate(**fields):
    return translate_generate(decoded(OllamaGenerateRequest, **fields), model())


def openai(**fields):
    return translate_openai(decoded(ChatCompletionRequest, **fields), model())


def refused(make, **fields):
    with pytest.raises(InvalidRequest) as caught:
        make(**fields)
    return caught.value.param


def test_the_prompt_is_that_of_the_same_chat():
    call = {"function": {"name": "f", "arguments": {"a": 1}}}
    found = chat(
        messages=[
            {"role": "system", "content": "s"},
            *USER,
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "r", "tool_name": "f"},
        ],
        tools=[TOOL],
    )
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]
    same = openai(
        messages=[
            {"role": "system", "content": "s"},
            *USER,
            {"role": "assistant", "content": "", "tool_calls": calls},
            {"role": "tool", "content": "r", "tool_call_id": "1"},
        ],
        tools=[TOOL],
    )
    assert found.prompts == same.prompts
    assert found.params == same.params


def test_streaming_is_the_default():
    assert chat().is_streamed
    assert not chat(stream=False).is_streamed


def test_options():
    options = {
        "temperature": 0.5,
        "top_k": 7,
        "top_p": 0.6,
        "min_p": 0.1,
        "seed": 8,
        "num_predict": 5,
        "stop": ["a"],
        "repeat_penalty": 1.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "num_ctx": 8192,
        "num_thread": 4,
    }
    [params] = chat(options=options).params
    assert (params.temperature, params.top_k, params.top_p, params.min_p) == (0.5, 7, 0.6, 0.1)
    assert (params.seed, params.max_tokens, params.stop) == (8, 5, ("a",))
    assert (params.repetition_penalty, params.presence_penalty) == (1.1, 0.2)
    assert params.frequency_penalty == 0.3


@pytest.mark.parametrize("wanted", [None, -1, -2, 0, 100_000])
def test_without_a_limit_the_answer_may_fill_the_context(wanted):
    found = chat(options={} if wanted is None else {"num_predict": wanted})
    assert found.params[0].max_tokens == 512 - found.num_prompt_tokens


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"mirostat": 1}, "mirostat"),
        ({"typical_p": 0.5}, "typical_p"),
        ({"tfs_z": 0.5}, "tfs_z"),
    ],
)
def test_options_with_an_effect_that_they_cannot_have(options, param):
    assert refused(chat, options=options) == param
    assert refused(generate, prompt="x", raw=True, options=options) == param


def test_options_without_effect():
    options = {"mirostat": 0, "mirostat_tau": 5.0, "typical_p": 1.0, "repeat_last_n": 64}
    assert chat(options=options).params == chat().params
    assert chat(options={"temperature": 3}).params[0].temperature == 3


@pytest.mark.parametrize("send", [chat, partial(generate, prompt="x", raw=True)])
@pytest.mark.parametrize(
    ("penalty", "field", "off"),
    [
        ({"repeat_penalty": 1.1}, "repetition_penalty", 1),
        ({"presence_penalty": 0.2}, "presence_penalty", 0),
        ({"frequency_penalty": 0.2}, "frequency_penalty", 0),
    ],
)
def test_a_window_of_penalties(send, penalty, field, off):
    [wanted] = penalty.values()
    for window in (64, 1, 4096):
        job = send(options=penalty | {"repeat_last_n": window})
        assert getattr(job.params[0], field) == wanted
        assert job.ignored == ("options.repeat_last_n",)
    whole = send(options=penalty | {"repeat_last_n": -1})
    assert (getattr(whole.params[0], field), whole.ignored) == (wanted, ())
    none = send(options=penalty | {"repeat_last_n": 0})
    assert (getattr(none.params[0], field), none.ignored) == (off, ())
    assert send(options={"repeat_last_n": 64, "repeat_penalty": 1.0}).ignored == ()


@pytest.mark.parametrize(
    ("form", "grammar"),
    [
        (None, None),
        ("", None),
        ("json", json_object()),
        (SCHEMA, json_schema(SCHEMA, is_strict=False)),
    ],
)
def test_formats(form, grammar):
    for found in (
        chat(format=form),
        generate(prompt="x", format=form),
        generate(prompt="x", raw=True, format=form),
    ):
        assert found.params[0].grammar == grammar


@pytest.mark.parametrize(
    ("think", "is_open"), [(None, False), (False, False), (True, True), ("high", True), ("", False)]
)
def test_think(think, is_open):
    thinking = chat(THINKS, think=think).params[0].thinking
    assert thinking.is_open is is_open


def test_logprobs():
    assert chat(logprobs=True, top_logprobs=3).params[0].logprobs == 3
    assert chat(logprobs=True).params[0].logprobs == 0
    assert generate(prompt="x", raw=True, logprobs=True).params[0].logprobs == 0
    assert chat(top_logprobs=3).params[0].logprobs is None


def test_images_are_refused_by_name():
    assert refused(chat, messages=[USER[0] | {"images": ["aGk="]}]) == "messages[0].images"
    assert refused(generate, prompt="x", images=["aGk="]) == "images"


def test_results_belong_to_calls():
    calls = [{"function": {"name": name, "arguments": {}}} for name in ("f", "g", "f")]
    turns = [
        {"role": "assistant", "tool_calls": calls},
        *({"role": "tool", "content": name, "tool_name": name} for name in ("g", "f", "f", "h")),
    ]
    request = decoded(OllamaChatRequest, messages=turns)
    found = chat_messages(request.messages)
    ids = [call.id for call in found[0].tool_calls]
    assert len(set(ids)) == 3
    assert [message.tool_call_id for message in found[1:]] == [ids[1], ids[0], ids[2], ""]


def test_results_without_a_name_belong_to_the_first_calls_left():
    calls = [{"function": {"name": name, "arguments": {}}} for name in ("f", "g", "f", "g")]
    names = ("g", None, None, "f", "g", None)
    results = [{"role": "tool", "content": ""} | ({"tool_name": n} if n else {}) for n in names]
    turns = [{"role": "assistant", "tool_calls": calls}, *results]
    found = chat_messages(decoded(OllamaChatRequest, messages=turns).messages)
    ids = [call.id for call in found[0].tool_calls]
    wanted = [ids[1], ids[0], ids[2], "", ids[3], ""]
    assert [message.tool_call_id for message in found[1:]] == wanted


class CountingName(str):
    """A name that counts its comparisons."""

    __slots__ = ()
    num_compared = 0

    def __eq__(self, other):
        CountingName.num_compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_result_is_not_compared_with_every_call():
    function = OllamaFunctionCall(name=CountingName("f"), arguments=msgspec.Raw(b"{}"))
    calls = [OllamaToolCall(function=function)] * 100
    turn = OllamaMessage(role="assistant", tool_calls=calls)
    result = OllamaMessage(role="tool", content="", tool_name=CountingName("g"))
    found = chat_messages([turn, *[result] * 100])
    assert [message.tool_call_id for message in found[1:]] == [""] * 100
    assert CountingName.num_compared <= 2 * 100, "the product is 10,000"


def test_a_client_that_has_left_ends_the_work_between_messages(leave):
    num_asked = 0

    def has_left():
        nonlocal num_asked
        num_asked += 1
        return num_asked == 3

    leave(has_left)
    with pytest.raises(RequestCancelled):
        chat_messages([OllamaMessage(role="user", content="q")] * 5)
    assert num_asked == 3


class TestGenerate:
    def test_a_prompt_is_a_turn_of_the_user(self):
        messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
        assert generate(prompt="q", system="s").prompts == openai(messages=messages).prompts

    def test_raw_is_the_text(self):
        found = generate(prompt="The quick", raw=True)
        assert list(found.prompts[0]) == model().tokenizer.encode(
            "The quick", add_special_tokens=True
        )

    def test_a_raw_answer_has_as_many_tokens_as_fit(self):
        found = generate(prompt="a", raw=True, options={"num_predict": 10**6})
        assert found.params[0].max_tokens == 512 - len(found.prompts[0])

    def test_a_suffix_fills_in_the_middle(self):
        text = model().tokenizer.decode(
            generate(prompt="a", suffix="b").prompts[0], skip_special_tokens=False
        )
        assert text == "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>"

    @pytest.mark.parametrize(
        ("name", "value"), [("template", "{{ .Prompt }}"), ("context", [1, 2]), ("width", 512)]
    )
    def test_what_the_server_does_not_have_is_refused_by_name(self, name, value):
        assert refused(generate, prompt="x", **{name: value}) == name


class TestModels:
    def test_entries(self):
        entry, running = local_model(model(), 0), running_model(model())
        assert entry.name == entry.model == running.name == model().name
        assert entry.modified_at == "1970-01-01T00:00:00Z"
        assert (entry.details.family, entry.details.format) == ("qwen3", "safetensors")
        assert entry.details.quantization_level == "F32"
        assert len(entry.digest) == 64
        assert entry.digest == running.digest
        assert running.context_length == 512

    def test_what_is_shown(self):
        shown = shown_model(model(CHATML + "<tool_call>"), 0)
        assert shown.capabilities == ["completion", "tools", "thinking", "insert"]
        assert shown.model_info["general.architecture"] == "qwen3"
        assert shown.model_info["qwen3.context_length"] == 512
        plain = shown_model(model("{{ messages }}"), 0)
        assert plain.capabilities == ["completion", "tools", "insert"]
        toolless = shown_model(model("{{ messages }}", tool_call_parser="none"), 0)
        assert toolless.capabilities == ["completion", "insert"]
