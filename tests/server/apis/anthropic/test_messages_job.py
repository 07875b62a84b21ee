"""A Messages request becomes the job of the chat request with the same meaning."""

import msgspec
import pytest

from core.contract.errors import ContextLengthExceeded, InvalidRequest
from core.contract.grammar import json_schema
from schemas.anthropic import CountTokensRequest
from schemas.chat import ChatCompletionRequest
from schemas.limits import MAX_DEPTH
from server.apis.anthropic.request import count_tokens, translate_messages
from server.apis.openai.chat import translate_chat
from tests.support.tokenizers import CHATML

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL = {"name": "f", "description": "d", "input_schema": SCHEMA}
FUNCTION = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}
HEAD = "x-anthropic-billing-header: cch={};\n"
THINKS = CHATML.replace("{% if enable_thinking %}<think>{% endif %}", "") + (
    "{% if enable_thinking %}<think>\n{% endif %}"
)
FIRST_ONLY = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
)


def chat(**fields):
    body = {"max_tokens": 9, **fields}
    return msgspec.json.decode(msgspec.json.encode(body), type=ChatCompletionRequest)


@pytest.fixture
def job(decoded, model):
    def job(template=None, *, settings=None, **fields):
        return translate_messages(decoded(**fields), model(template, **(settings or {})))

    return job


@pytest.fixture
def params(job):
    def params(*args, **fields):
        [found] = job(*args, **fields).params
        return found

    return params


@pytest.fixture
def count(decoded, model):
    def count(template=None, **fields):
        request = decoded(type_=CountTokensRequest, **fields)
        return msgspec.json.decode(count_tokens(request, model(template)))["input_tokens"]

    return count


def test_the_prompt_is_that_of_the_same_chat(job, model):
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]
    same = translate_chat(
        chat(
            messages=[
                {"role": "system", "content": "s"},
                {"role": "user", "content": "q"},
                {"role": "assistant", "content": "Well:", "tool_calls": calls},
                {"role": "tool", "content": "r", "tool_call_id": "1"},
                {"role": "user", "content": "go"},
            ],
            tools=[FUNCTION],
        ),
        model(),
    )
    use = {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": "r"}
    found = job(
        system="s",
        messages=[
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [{"type": "text", "text": "Well:"}, use]},
            {"role": "user", "content": [result, {"type": "text", "text": "go"}]},
        ],
        tools=[TOOL],
    )
    assert found.prompts == same.prompts
    assert found.params == same.params


def test_sampling(params):
    found = params(
        stop_sequences=["a", "b"],
        temperature=0.5,
        top_p=0.6,
        top_k=7,
        seed=8,
        min_p=0.1,
        max_tokens=5,
    )
    assert (found.stop, found.temperature, found.top_p) == (("a", "b"), 0.5, 0.6)
    assert (found.top_k, found.seed, found.min_p, found.max_tokens) == (7, 8, 0.1, 5)


def test_more_tokens_than_the_context_has_room_for_are_clamped(job):
    found = job(max_tokens=32_000)
    assert found.params[0].max_tokens == 512 - found.num_prompt_tokens


def test_a_prompt_that_does_not_fit_is_refused(job):
    with pytest.raises(ContextLengthExceeded):
        job(messages=[{"role": "user", "content": "x" * 3000}])


def test_the_billing_line_changes_nothing(job):
    prompts = [job(system=HEAD.format(cch) + "Be brief.").prompts for cch in ("4f2a1", "00b7c")]
    assert prompts[0] == prompts[1] == job(system="Be brief.").prompts
    kept = {"keep_billing_header": True}
    kept_prompts = [job(system=HEAD.format(c), settings=kept).prompts for c in ("4f2a1", "00b7c")]
    assert kept_prompts[0] != kept_prompts[1]


def test_a_late_system_message_where_the_template_has_none(job, model):
    turns = [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]
    same = {"messages": [{"role": "user", "content": "a\nb"}]}
    assert job(FIRST_ONLY, messages=turns).prompts == job(FIRST_ONLY, **same).prompts
    assert job(messages=turns).prompts != job(**same).prompts


@pytest.mark.parametrize(
    ("thinking", "is_open", "budget"),
    [
        (None, False, None),
        ({"type": "disabled"}, False, None),
        ({"type": "adaptive", "display": "omitted"}, True, None),
        ({"type": "between_tools"}, True, None),
        ({"type": "enabled", "budget_tokens": 1024}, True, 1024),
    ],
)
def test_thinking(params, thinking, is_open, budget):
    found = params(THINKS, thinking=thinking).thinking
    assert (found.is_open, found.budget) == (is_open, budget)


def test_a_model_that_does_not_think_ignores_thinking(params):
    template = CHATML.replace("<think>", "")
    found = params(template, thinking={"type": "enabled", "budget_tokens": 1024})
    assert found.thinking is None


def test_effort_reaches_the_template(job, model):
    template = CHATML + "{{ reasoning_effort }}"
    prompt = job(template, output_config={"effort": "high"}).prompts[0]
    assert model().tokenizer.decode(prompt).endswith("high")


@pytest.mark.parametrize("name", ["output_config", "output_format"])
def test_an_output_format_is_enforced(params, name):
    form = {"type": "json_schema", "schema": SCHEMA}
    found = params(**{name: {"format": form} if name == "output_config" else form})
    assert found.grammar == json_schema(SCHEMA, is_strict=False)


def test_the_beginning_of_the_answer(job, model):
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "The best is ("}]
    assert model().tokenizer.decode(job(messages=turns).prompts[0]).endswith("The best is (")


@pytest.mark.parametrize(
    "content", [[], [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]]
)
def test_a_beginning_needs_text(job, content):
    with pytest.raises(InvalidRequest) as caught:
        job(messages=[{"role": "user", "content": "a"}, {"role": "assistant", "content": content}])
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("container", {"id": "c"}),
        ("mcp_servers", [{"type": "url", "name": "m", "url": "u"}]),
        ("compaction", {"type": "auto"}),
    ],
)
def test_what_the_server_does_not_have_is_refused_by_name(job, name, value):
    with pytest.raises(InvalidRequest) as caught:
        job(**{name: value})
    assert (caught.value.param, caught.value.code) == (name, "unsupported_parameter")


def test_threads_are_refused_with_anthropics_code(job):
    with pytest.raises(InvalidRequest) as caught:
        job(thread={"type": "create"})
    assert (caught.value.param, caught.value.code) == ("thread", "thread_unsupported_request")


def test_what_changes_nothing_is_accepted(job):
    accepted = {
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "cache_control": {"type": "ephemeral"},
        "mcp_servers": [],
        "tools": [],
        "inference_geo": "eu",
        "speed": "fast",
        "diagnostics": {},
    }
    assert job(**accepted).prompts == job().prompts


class TestCount:
    def test_is_the_number_of_the_prompts_tokens(self, job, count):
        fields = {"system": "s", "tools": [TOOL], "thinking": {"type": "adaptive"}}
        assert count(**fields) == job(**fields).num_prompt_tokens
        begun = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        assert count(messages=begun) == job(messages=begun).num_prompt_tokens

    def test_tools_that_the_server_itself_writes_are_counted(self, job, count):
        template = CHATML.replace("{% if tools %}{{ tools | tojson }}{% endif %}", "")
        with_tools = count(template, tools=[TOOL])
        assert with_tools == job(template, tools=[TOOL]).num_prompt_tokens
        assert with_tools > count(template)

    def test_a_conversation_that_does_not_fit_is_counted(self, count):
        assert count(messages=[{"role": "user", "content": "x y " * 2000}]) > 512

    def test_texts_have_a_limit(self, count, monkeypatch):
        monkeypatch.setattr("server.translation.prompts.MAX_TOKENIZED", 100)
        with pytest.raises(InvalidRequest) as caught:
            count(messages=[{"role": "user", "content": "x" * 100}])
        assert caught.value.param == "messages"

    def test_schemas_that_are_nested_too_deeply_are_refused(self, count):
        schema = {}
        for _ in range(MAX_DEPTH):
            schema = {"not": schema}
        with pytest.raises(InvalidRequest, match="levels deep") as caught:
            count(tools=[TOOL | {"input_schema": schema}])
        assert caught.value.param == "tools"
