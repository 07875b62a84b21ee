"""Which form of a message's content a chat template reads: a text, a list of parts, or both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from core.contract.errors import InvalidRequest

Message: TypeAlias = Mapping[str, Any]
Render: TypeAlias = Callable[[Sequence[Message]], str]
"""Renders a conversation. Raises InvalidRequest."""

Form: TypeAlias = Literal["text", "parts", "both"]
Forms: TypeAlias = Mapping[str, Form]
"""By role."""

_MARK = "4721908365"
"""Digits: templates do not change their case, and need not escape them."""

_UNREAD = "8163092475"
"""A member of a part that no template reads. Its text appears where the list itself is printed."""

_HELLO = {"role": "user", "content": "Hello"}
_CALL = {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": {}}}
_CALLER = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
_AROUND: Mapping[str, tuple[list[Message], list[Message]]] = {
    "user": ([], []),
    "system": ([], [_HELLO]),
    "assistant": ([_HELLO], [_HELLO]),
    "tool": ([_HELLO, _CALLER], []),
}
"""What stands before and after the message that is tried."""


def forms_of(render: Render) -> Forms:
    """Render a text in both forms for each role.

    A role whose text is shown in neither form is read as the user's. Where that is not known
    either, contents are texts.
    """
    found = {role: _form(render, role) for role in _AROUND}
    default: Form = found["user"] or "text"
    return MappingProxyType({role: form or default for role, form in found.items()})


def fitted(messages: Sequence[Message], forms: Forms) -> list[dict[str, Any]]:
    """The messages with contents that the template reads.

    A text becomes one part, and parts become lines of a text, only where it reads nothing else.
    Contents of roles without a known form stay as they are.
    """
    return [
        {**message, "content": _content(message["content"], forms[message["role"]])}
        if "content" in message and message["role"] in forms
        else {**message}
        for message in messages
    ]


def joined(content: str | Sequence[Mapping[str, Any]]) -> str:
    """A content as text: parts are joined by newlines."""
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def parts_of(texts: Sequence[str]) -> list[dict[str, str]]:
    """Texts as parts of a content."""
    return [{"type": "text", "text": text} for text in texts]


def _content(content: Any, form: Form) -> Any:
    is_text = isinstance(content, str)
    if form == "parts":
        return parts_of([content]) if is_text else content or parts_of([""])
    return content if is_text or (form == "both" and content) else joined(content)


def _form(render: Render, role: str) -> Form | None:
    """The form that shows a text of this role; None if neither does."""
    as_text = _shows(render, role, _MARK)
    as_parts = _shows(render, role, [{**parts_of([_MARK])[0], _UNREAD: ""}])
    if as_text and as_parts:
        return "both"
    return "text" if as_text else "parts" if as_parts else None


def _shows(render: Render, role: str, content: Any) -> bool:
    before, after = _AROUND[role]
    message = {"role": role, "content": content}
    if role == "tool":
        message |= {"tool_call_id": _CALL["id"], "name": "f"}
    try:
        rendered = render([*before, message, *after])
    except InvalidRequest:  # no template, or one that rejects this conversation
        return False
    return _MARK in rendered and _UNREAD not in rendered
