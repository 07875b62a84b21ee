"""POST /v1/responses as agents use it: bodies of their shape, long loops, a checker of others."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from llm_comply.tests import get_tests
from tokenizers import Tokenizer

from compat_tests.support.api import Api, Json
from compat_tests.support.process import ServerProcess
from compat_tests.support.responses import WEATHER, respond, stream

TURNS = 20
SHARE = 0.95
"""Least part of a prompt that comes from the cache from the second turn on."""

BEYOND = {"image-input", "compact-response", "compact-missing-model"}
"""Checks of images, which no text model reads, and of compaction, which the server does not do."""


def codex_body(*items: Json) -> Json:
    """A request in the shape of Codex 0.169, written for this test."""
    shell = {
        "type": "function",
        "name": "exec_command",
        "description": "Runs a command.",
        "strict": False,
        "parameters": {
            "type": "object",
            "properties": {
                "cmd": {"type": "string", "maxLength": 10},
                "yield_time_ms": {"type": "number", "description": "How long to wait."},
            },
            "required": ["cmd"],
            "additionalProperties": False,
        },
    }
    note = {
        "type": "function",
        "name": "add",
        "description": "Adds a note.",
        "strict": False,
        "parameters": {"type": "object", "properties": {"x": {"type": "boolean"}}},
    }
    return {
        "tools": [
            shell,
            {"type": "namespace", "name": "notes", "description": "Notes.", "tools": [note]},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199c3a1-0000-7000-8000-000000000000",
        "client_metadata": {"x-codex-installation-id": "0199c3a1"},
        "text": {"verbosity": "medium"},
        "temperature": 1,
        "input": [
            {
                "type": "message",
                "id": "msg_client_1",
                "role": "developer",
                "content": [{"type": "input_text", "text": "You are an agent."}],
            },
            {
                "type": "message",
                "id": "msg_client_2",
                "role": "user",
                "content": [{"type": "input_text", "text": "List the files."}],
            },
            *items,
        ],
    }


class TestCodex:
    def test_a_turn(self, api: Api) -> None:
        body = codex_body()
        events = stream(api, body.pop("input"), **body, max_output_tokens=60)
        response = events[-1]["response"]
        assert response["status"] in {"completed", "incomplete"}
        assert response["store"] is False
        assert [tool["type"] for tool in response["tools"]] == ["function", "namespace"]

    def test_calls_of_a_namespace(self, api: Api) -> None:
        body = codex_body() | {"temperature": 0}
        choice = {"type": "function", "name": "add", "namespace": "notes"}
        first = respond(api, body.pop("input"), **body | {"tool_choice": choice})
        [call] = [item for item in first["output"] if item["type"] == "function_call"]
        assert (call["namespace"], call["name"]) == ("notes", "add")
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "Done."}
        body = codex_body(*first["output"], output) | {"temperature": 0}
        second = respond(api, body.pop("input"), **body, max_output_tokens=20)
        assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]

    def test_no_field_is_ignored(self, api: Api) -> None:
        body = codex_body() | {"model": api.server.model, "max_output_tokens": 2}
        reply = api.post("/v1/responses", body)
        assert reply.status == 200
        assert reply.header("x-roseinfer-ignored") is None


class TestLoop:
    """A long conversation: all of it is in the prefix cache, but for the last turn."""

    @pytest.fixture
    def instructions(self, tokenizer: Tokenizer) -> str:
        text = "Rules. "
        while len(tokenizer.encode(text).ids) < 1000:
            text += f"Rule {len(text)}: be kind, be brief, and say what is true. "
        return text

    def check(self, usages: list[Json]) -> None:
        assert len(usages) == TURNS
        for usage in usages[1:]:
            cached = usage["input_tokens_details"]["cached_tokens"]
            assert cached >= SHARE * usage["input_tokens"], usage

    def test_stored(self, api: Api, instructions: str) -> None:
        previous, usages = None, []
        for turn in range(TURNS):
            response = respond(
                api,
                f"Go on {turn}.",
                instructions=instructions,
                previous_response_id=previous,
                max_output_tokens=12,
            )
            previous = response["id"]
            usages.append(response["usage"])
        self.check(usages)

    def test_the_whole_history_with_calls(self, api: Api, instructions: str) -> None:
        items: list[Json] = [{"role": "user", "content": "What is the weather?"}]
        usages = []
        for turn in range(TURNS):
            response = stream(
                api,
                items,
                instructions=instructions,
                tools=[WEATHER],
                tool_choice="required",
                store=False,
            )[-1]["response"]
            usages.append(response["usage"])
            items += response["output"]
            items += [
                {"type": "function_call_output", "call_id": item["call_id"], "output": f"{turn}"}
                for item in response["output"]
            ]
        self.check(usages)


@pytest.mark.slow
def test_llm_comply(start_server: Callable[..., ServerProcess]) -> None:
    """All checks of llm-comply but those of BEYOND. It checks reasoning of models of some names."""
    server = start_server("--served-model-name", "gpt-5-rose").wait_ready()
    wanted = {case.id for case in get_tests("open-responses")} - BEYOND
    options = {
        "--base-url": f"{server.url}/v1",
        "--api-key": "unused",
        "--model": server.model,
        "--filter": ",".join(sorted(wanted)),
    }
    flags = [word for option in options.items() for word in option]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "llm_comply.cli", *flags, "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    results = json.loads(done.stdout[done.stdout.index("{") :])["results"]
    assert {result["id"] for result in results} == wanted
    assert len(wanted) >= 10
    assert [result for result in results if result["status"] != "passed"] == []
