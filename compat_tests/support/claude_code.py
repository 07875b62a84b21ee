"""Requests in the shape of Claude Code 2.1's, made small. The texts are ours."""

from typing import Any

from compat_tests.support.api import Json

PATH = "/v1/messages?beta=true"

HEADERS: dict[str, str | None] = {
    "x-api-key": "unused",
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,"
    "context-management-2025-06-27,prompt-caching-scope-2026-01-05,effort-2025-11-24,"
    "advanced-tool-use-2025-11-20",
    "anthropic-dangerous-direct-browser-access": "true",
    "user-agent": "claude-cli/2.1.0 (external, cli)",
    "x-app": "cli",
    "x-stainless-lang": "js",
    "x-stainless-retry-count": "0",
}

NAMES = [
    *("Bash", "Edit", "Glob", "Grep", "NotebookEdit", "Read", "Task"),
    *("TodoWrite", "ToolSearch", "WebFetch", "Write", "mcp__git__log"),
]
"""Twelve tools. The last one is loaded when a search has found it."""

KEEP = {"type": "ephemeral"}


def tool(name: str, **fields: Any) -> Json:
    return {
        "name": name,
        "description": f"{name} it.",
        "input_schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
            "additionalProperties": False,
        },
        **fields,
    }


def system(number: int) -> list[Json]:
    """System blocks. The first differs in every request."""
    billing = f"cc_version=2.1.0.abc; cc_entrypoint=cli; cch={number * 7919 % 99991:05x};"
    return [
        {"type": "text", "text": f"x-anthropic-billing-header: {billing}"},
        {"type": "text", "text": "You are a coding agent.", "cache_control": KEEP},
        {"type": "text", "text": "Be brief. Use the tools.", "cache_control": KEEP},
    ]


def question(text: str) -> list[Json]:
    """The user's first message, and the system message after it."""
    reminder = {"type": "text", "text": "<system-reminder>Today is Sunday.</system-reminder>"}
    asked = {"type": "text", "text": text, "cache_control": KEEP}
    return [
        {"role": "user", "content": [reminder, asked]},
        {"role": "system", "content": [{"type": "text", "text": "The tools are ready."}]},
    ]


def body(model: str, messages: list[Json], number: int = 1, **fields: Any) -> Json:
    """The body of request ``number``."""
    tools = [tool(name) for name in NAMES[:-1]] + [tool(NAMES[-1], defer_loading=True)]
    return {
        "model": model,
        "messages": messages,
        "system": system(number),
        "tools": tools,
        "metadata": {"user_id": '{"device_id":"d","account_uuid":"","session_id":"s"}'},
        "max_tokens": 32_000,
        "thinking": {"type": "adaptive", "display": "omitted"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "stream": True,
    } | fields
