"""translate_response: fields, stored conversations, truncation, and what the response repeats."""

import msgspec
import pytest
from openai.types.responses import response_create_params as params

from core.contract.errors import ContextLengthExceeded
from core.contract.grammar import json_object, json_schema
from schemas.chat import ChatCompletionRequest
from schemas.responses_request import ResponsesRequest
from server.apis.openai.chat import translate_chat
from server.apis.responses.request import SAME_FIELDS, translate_response
from server.apis.responses.store import ResponseStore, Shelf
from tests.support.each import each
from tests.support.engines import last
from tests.support.responses import checked_response

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

BAD_FORMAT = {"type": "json_schema", "name": "n", "schema": {"type": 5}, "strict": True}
LENIENT = json_schema(SCHEMA, is_strict=False)


def say(role, text):
    return {"role": role, "content": text}


@pytest.fixture
def chat(model):
    """The chat job of these fields."""

    def chat(**fields):
        body = {"messages": [say("user", "hi")], "model": "m"} | fields
        return translate_chat(msgspec.convert(body, ChatCompletionRequest), model)

    return chat


@each(
    ("fields", "chat_fields"),
    [
        ({}, {}),
        (
            {"instructions": "be brief"},
            {"messages": [say("system", "be brief"), say("user", "hi")]},
        ),
        (
            {"input": [say("developer", "x"), say("user", "a"), say("assistant", "b")]},
            {"messages": [say("developer", "x"), say("user", "a"), say("assistant", "b")]},
        ),
        (
            {"tools": [TOOL]},
            {"tools": [{"type": "function", "function": {**TOOL} | {"type": ...}}]},
        ),
        ({"reasoning": {"effort": "low"}}, {"reasoning_effort": "low"}),
    ],
)
def test_the_prompt_is_that_of_chat(translate, chat, fields, chat_fields):
    for tool in chat_fields.get("tools", ()):
        tool["function"] = {k: v for k, v in tool["function"].items() if v is not ...}
    assert list(translate(**fields).prompts[0]) == list(chat(**chat_fields).prompts[0])


def test_sampling(translate):
    job = translate(
        temperature=0.5,
        top_p=0.25,
        max_output_tokens=7,
        seed=3,
        stop=["x"],
        top_k=4,
        presence_penalty=1.5,
        frequency_penalty=-0.5,
        priority=5,
        cache_salt="s",
    )
    [params] = job.params
    assert (params.temperature, params.top_p, params.max_tokens) == (0.5, 0.25, 7)
    assert (params.seed, params.stop, params.top_k) == (3, ("x",), 4)
    assert (params.presence_penalty, params.frequency_penalty) == (1.5, -0.5)
    assert (job.priority, job.cache_salt, job.num_choices) == (5, "s", 1)
    assert params.logprobs is None


def test_same_fields_have_the_same_meaning():
    assert {"temperature", "top_p", "seed", "stop", "stream", "store"} <= set(SAME_FIELDS)
    assert not {"prompt", "metadata", "tools", "top_logprobs"} & set(SAME_FIELDS)


@each(
    ("fields", "num_top"),
    [
        ({}, None),
        ({"include": ["message.output_text.logprobs"]}, 0),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 3}, 3),
        ({"top_logprobs": 3}, 3),
        ({"top_logprobs": 0}, None),
    ],
)
def test_logprobs(translate, fields, num_top):
    assert translate(**fields).params[0].logprobs == num_top


@each(
    ("wanted", "grammar"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, json_object()),
        ({"type": "json_schema", "name": "n", "schema": SCHEMA}, LENIENT),
        ({"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": None}, LENIENT),
        (
            {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True},
            json_schema(SCHEMA),
        ),
    ],
)
def test_text_format(translate, wanted, grammar):
    assert translate(text={"format": wanted}).params[0].grammar == grammar


@each(
    ("fields", "param"),
    [
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"moderation": {"model": "m"}}, "moderation"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
        ({"reasoning": {"context": "all_turns"}}, "reasoning.context"),
        ({"stream_options": {}}, "stream_options"),
        ({"input": ...}, "input"),
        ({"input": []}, "input"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
        (
            {"text": {"format": BAD_FORMAT}},
            "text.format",
        ),
        ({"tools": [TOOL | {"strict": True, "parameters": {"type": 5}}]}, "tools"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": [{"type": "item_reference"}]}, "input[0].id"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].id"),
        ({"input": "long " * 1000}, "input"),
        ({"max_output_tokens": 5000}, "input"),
    ],
)
def test_refused(refused, fields, param):
    refused(param, **fields)


def test_what_is_not_enforced_has_the_clients_name(translate):
    schema = {"type": "object", "properties": {"a": {"not": {}}}}
    wanted = {"type": "json_schema", "name": "n", "schema": schema, "strict": False}
    job = translate(text={"format": wanted}, tools=[TOOL | {"parameters": schema}])
    job.new_grammars.compile("")
    assert set(job.new_grammars.warnings) == {"text.format.not", "tools.f.not"}


def test_deep_json_is_refused(refused):
    deep = {}
    for _ in range(300):
        deep = {"a": deep}
    refused("metadata", metadata=deep)
    refused("text", text={"format": {"type": "json_schema", "name": "n", "schema": deep}})


@each(
    "fields",
    [
        {"background": False},
        {"store": False},
        {"include": ["reasoning.encrypted_content", "file_search_call.results"]},
        {"reasoning": {"mode": "standard", "context": "auto", "summary": None}},
        {"context_management": [], "client_metadata": {"a": 1}, "prompt_cache_key": "k"},
        {"truncation": "disabled", "service_tier": "flex", "user": "u", "max_tool_calls": 3},
        {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True},
        {"stream": True, "stream_options": {"include_obfuscation": True}},
    ],
)
def test_accepted(translate, fields):
    assert translate(**fields).prompts


class TestEcho:
    def test_defaults(self, translate):
        response = checked_response(translate().renderer.whole([last(text="fine")]))
        assert {
            name: value
            for name, value in response.items()
            if name not in {"id", "created_at", "completed_at", "model", "output", "usage"}
        } == {
            "object": "response",
            "status": "completed",
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "max_output_tokens": None,
            "max_tool_calls": None,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "prompt_cache_key": None,
            "reasoning": {"effort": None, "summary": None},
            "safety_identifier": None,
            "service_tier": "default",
            "store": True,
            "temperature": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_logprobs": 0,
            "top_p": 1.0,
            "truncation": "disabled",
            "user": None,
            "metadata": {},
        }
        assert response["id"].startswith("resp_")

    @each(
        "fields",
        [
            {"instructions": "x", "max_output_tokens": 9, "max_tool_calls": 2, "store": False},
            {"temperature": 0.0, "top_p": 0.5, "presence_penalty": 1.0, "frequency_penalty": -1.0},
            {"metadata": {"a": "b"}, "user": "u", "safety_identifier": "s"},
            {"prompt_cache_key": "k", "truncation": "auto", "parallel_tool_calls": False},
            {"tools": [TOOL | {"description": None, "strict": False}], "tool_choice": "none"},
            {
                "tools": [TOOL | {"description": "d", "strict": True}],
                "tool_choice": {"type": "function", "name": "f"},
            },
            {"reasoning": {"effort": "low", "summary": "auto"}},
            {"text": {"format": {"type": "json_object"}, "verbosity": "low"}},
            {
                "text": {
                    "format": {
                        "type": "json_schema",
                        "name": "n",
                        "description": None,
                        "schema": SCHEMA,
                        "strict": True,
                    }
                }
            },
            {"top_logprobs": 2},
        ],
    )
    def test_what_was_given(self, translate, fields):
        response = checked_response(translate(**fields).renderer.whole([last(text="{}")]))
        assert {name: response[name] for name in fields} == fields

    def test_a_namespace(self, translate):
        tool = {"type": "namespace", "name": "n", "description": "d", "tools": [TOOL]}
        response = checked_response(translate(tools=[tool]).renderer.whole([last(text="x")]))
        [shown] = response["tools"]
        assert (shown["type"], shown["name"], shown["tools"][0]["name"]) == ("namespace", "n", "f")


class TestStored:
    def test_a_conversation_goes_on(self, translate, answer, chat):
        first = answer("fine", input="hi", instructions="be brief")
        job = translate(previous_response_id=first["id"], input="and you?")
        messages = [say("user", "hi"), say("assistant", "fine"), say("user", "and you?")]
        assert list(job.prompts[0]) == list(chat(messages=messages).prompts[0])

    def test_a_chain(self, translate, answer, chat):
        previous, messages = None, []
        for i in range(4):
            response = answer(f"a{i}", input=f"q{i}", previous_response_id=previous)
            previous = response["id"]
            messages += [say("user", f"q{i}"), say("assistant", f"a{i}")]
        job = translate(input=..., previous_response_id=previous)
        assert list(job.prompts[0]) == list(chat(messages=messages).prompts[0])

    def test_calls_and_their_outputs(self, translate, shelf, answer):
        call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": "c", "output": "42"}
        first = answer(input=[say("user", "hi"), call, output])
        direct = translate(
            input=[say("user", "hi"), call, output, say("assistant", "fine"), say("user", "x")]
        )
        job = translate(previous_response_id=first["id"], input="x")
        assert list(job.prompts[0]) == list(direct.prompts[0])

    def test_ids_of_the_client_are_kept_and_others_made(self, shelf, answer):
        response = answer(input=[say("user", "a") | {"id": "mine"}, say("user", "b")])
        stored = shelf.store.get(shelf.tenant, response["id"])
        items = [msgspec.json.decode(item) for item in stored.items]
        assert items[0]["id"] == "mine"
        assert items[1]["id"].startswith("msg_")
        assert items[2] == response["output"][0]
        assert stored.num_inputs == 2

    def test_a_reference_to_an_item(self, translate, answer, chat):
        first = answer("fine", input="hi")
        reference = {"type": "item_reference", "id": first["output"][0]["id"]}
        job = translate(input=[say("user", "hi"), reference, say("user", "x")])
        messages = [say("user", "hi"), say("assistant", "fine"), say("user", "x")]
        assert list(job.prompts[0]) == list(chat(messages=messages).prompts[0])

    def test_store_false(self, shelf, answer, refused):
        response = answer(store=False)
        assert shelf.store.get(shelf.tenant, response["id"]) is None
        error = refused("previous_response_id", previous_response_id=response["id"])
        assert error.code == "previous_response_not_found"
        assert "expired" in error.message

    def test_a_server_without_a_store(self, decode, model):
        shelf = Shelf(ResponseStore(0, 0), "tenant")
        job = translate_response(decode(), model, shelf)
        assert checked_response(job.renderer.whole([last(text="x")]))["store"] is False

    def test_another_tenant(self, decode, model, shelf, answer):
        response = answer()
        other = Shelf(shelf.store, "other")
        with pytest.raises(Exception, match="not found"):
            translate_response(decode(previous_response_id=response["id"]), model, other)


class TestTruncation:
    def items(self, num_turns, *, size=40):
        turns = [
            [say("user", f"q{i} " + "x" * size), say("assistant", f"a{i}")]
            for i in range(num_turns)
        ]
        return [say("system", "rules"), *(item for turn in turns for item in turn)]

    def test_the_oldest_turns_go(self, translate, model):
        items = self.items(30)
        job = translate(input=items, truncation="auto", max_output_tokens=20)
        text = model.tokenizer.decode(job.prompts[0])
        assert "rules" in text
        assert "a29" in text
        assert "q0 " not in text
        assert len(job.prompts[0]) <= 512 - 20
        kept = [i for i in range(30) if f"q{i} " in text]
        assert kept == list(range(kept[0], 30))
        one_more = items[:1] + items[1 + 2 * (kept[0] - 1) :]
        with pytest.raises(ContextLengthExceeded):
            translate(input=one_more, max_output_tokens=20)

    def test_what_fits_is_not_cut(self, translate):
        items = self.items(3)
        assert translate(input=items, truncation="auto").prompts == translate(input=items).prompts

    @each("num_turns", [1, 2, 5])
    def test_a_last_turn_that_does_not_fit(self, refused, num_turns):
        items = [*self.items(num_turns), say("user", "long " * 1000)]
        error = refused("input", input=items, truncation="auto")
        assert error.code == "context_length_exceeded"

    def test_disabled(self, refused):
        refused("input", input=self.items(30))


def test_every_parameter_of_the_sdk_is_declared():
    sdk = {
        *params.ResponseCreateParamsBase.__annotations__,
        *params.ResponseCreateParamsStreaming.__annotations__,
    }
    unknown = {"access_programs", "background_options", "image"}
    assert sdk - unknown <= set(ResponsesRequest.__struct_fields__)
