"""Answers of a live server to random schemas and tools, validated."""

from __future__ import annotations

import collections
import http.client
import json
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from benchmarks.process import ServerProcess
from benchmarks.structured.schemas import random_schema

Json: TypeAlias = dict[str, Any]

WIDTH = 16
"""Concurrent requests."""

START_TIMEOUT = 120.0

CHECKER = Draft202012Validator.FORMAT_CHECKER
"""The formats of this draft; other drafts define some of the same names differently."""


def check_all(count: int) -> bool:
    """Request each kind of answer ``count`` times; whether all answers are valid."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with ServerProcess(_command, log) as server:
            server.wait_ready(START_TIMEOUT)
            url = server.url
            return all(
                [
                    check("random schemas, temperature 1", count, lambda i: check_json(url, i)),
                    check("required calls", count, lambda i: check_calls(url, i, is_named=False)),
                    check("named calls", count, lambda i: check_calls(url, i, is_named=True)),
                ]
            )


def _command(port: int) -> list[str]:
    address = ["--host", "127.0.0.1", "--port", str(port)]
    return [sys.executable, "-m", "server", "serve", *address, "--log-level", "warning"]


def check(title: str, count: int, check_one: Callable[[int], str]) -> bool:
    """Print the number of answers by outcome; whether there are no invalid ones."""
    start = time.monotonic()
    with ThreadPoolExecutor(WIDTH) as pool:
        outcomes = collections.Counter(pool.map(check_one, range(count)))
    seconds = time.monotonic() - start
    shown = ", ".join(f"{outcome} {number}" for outcome, number in sorted(outcomes.items()))
    print(f"{title}: {shown} of {count} ({seconds:.0f} s)", flush=True)
    return set(outcomes) <= {"valid", "cut"}


def check_json(url: str, seed: int) -> str:
    """Request JSON for a random schema. Returns ``valid``, ``cut``, or what is wrong."""
    schema = random_schema(seed)
    response_format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    choice, problem = request_choice(url, seed, response_format=response_format)
    if choice is None:
        return problem
    if choice["finish_reason"] == "length":
        return "cut"
    return validate(choice["message"]["content"], schema)


def check_calls(url: str, seed: int, *, is_named: bool) -> str:
    """Request calls of tools with random parameters. Returns the same as ``check_json``."""
    schemas = {f"tool_{i}": random_schema(10_000 + 2 * seed + i) for i in range(2)}
    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}
        for name, schema in schemas.items()
    ]
    named = {"type": "function", "function": {"name": "tool_1"}}
    tool_choice = named if is_named else "required"
    choice, problem = request_choice(url, seed, tools=tools, tool_choice=tool_choice)
    if choice is None:
        return problem
    if choice["finish_reason"] == "length":
        return "cut"
    if choice["finish_reason"] != ("stop" if is_named else "tool_calls"):
        return f"finish reason {choice['finish_reason']}"
    calls = choice["message"].get("tool_calls", [])
    if not calls or choice["message"]["content"] is not None:
        return "no calls, or text besides them"
    if is_named and [call["function"]["name"] for call in calls] != ["tool_1"]:
        return "not the named tool"
    found = [
        validate(call["function"]["arguments"], schemas[call["function"]["name"]]) for call in calls
    ]
    return next((outcome for outcome in found if outcome != "valid"), "valid")


def request_choice(url: str, seed: int, **fields: Any) -> tuple[Json | None, str]:
    """The choice of a chat completion, or None and the server's error."""
    messages = [{"role": "user", "content": "Give me a JSON object."}]
    body = {"messages": messages, "temperature": 1, "seed": seed} | fields
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)
    try:
        connection.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(body),
            {"content-type": "application/json"},
        )
        response = connection.getresponse()
        answer = json.loads(response.read())
    finally:
        connection.close()
    if response.status != 200:
        return None, f"{response.status}: {answer['error']['message']}"
    return answer["choices"][0], ""


def validate(text: str, schema: Json) -> str:
    """``valid`` if the text is JSON that satisfies the schema, else what is wrong."""
    try:
        Draft202012Validator(schema, format_checker=CHECKER).validate(json.loads(text))
    except json.JSONDecodeError:
        return "not JSON"
    except ValidationError as error:
        return f"invalid: {error.message[:80]}"
    return "valid"
