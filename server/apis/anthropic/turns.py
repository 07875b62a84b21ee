"""Turns of the Messages API to chat messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TypeAlias

from schemas import anthropic as wire
from schemas import messages as chat
from server.apis.anthropic.thinking import Unpacker
from server.http.errors import invalid, unsupported
from server.workers.pools import checkpoint

Placed: TypeAlias = tuple[str, wire.Block]
"""A block, and its path in the request."""


def chat_messages(
    turns: Sequence[wire.Turn], system: Sequence[str], *, takes_late_system: bool
) -> list[chat.Message]:
    """Consecutive turns of one role become one message. Raises InvalidRequest naming the block.

    ``system`` comes first. Later system messages stay where they are if the chat template takes
    them there, else they become text of the user's.
    """
    messages: list[chat.Message] = []
    if system:
        messages.append(chat.SystemMessage(content=_content(system)))

    def role(placed: tuple[int, wire.Turn]) -> str:
        is_user = placed[1].role == "system" and not takes_late_system
        return "user" if is_user else placed[1].role

    names: dict[str, str] = {}
    unpacker = Unpacker()
    for kind, group in groupby(enumerate(turns), role):
        blocks = [block for i, turn in group for block in _blocks(turn, f"messages[{i}].content")]
        match kind:
            case "assistant":
                messages.append(_assistant(blocks, names, unpacker))
            case "system":
                messages.append(chat.SystemMessage(content=_content(map(_text, blocks))))
            case _:
                messages += _user(blocks, names)
    return messages


def _blocks(turn: wire.Turn, path: str) -> list[Placed]:
    if isinstance(turn.content, str):
        return [(path, wire.TextBlock(text=turn.content))]
    return [(f"{path}[{i}]", block) for i, block in enumerate(turn.content)]


def _user(blocks: Sequence[Placed], names: dict[str, str]) -> list[chat.Message]:
    """A message for each result of a call, and for each run of texts. ``names`` are by call id."""
    messages: list[chat.Message] = []
    texts: list[str] = []
    for path, block in blocks:
        if not isinstance(block, wire.ToolResultBlock):
            texts.append(_text((path, block)))
            continue
        if texts:
            messages.append(chat.UserMessage(content=_content(texts)))
            texts = []
        call_id = block.tool_use_id
        message = chat.ToolMessage(
            content=_result(block, path), tool_call_id=call_id, name=names.get(call_id)
        )
        messages.append(message)
    if texts or not messages:
        messages.append(chat.UserMessage(content=_content(texts)))
    return messages


def _assistant(
    blocks: Sequence[Placed], names: dict[str, str], unpacker: Unpacker
) -> chat.AssistantMessage:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[chat.RequestToolCall] = []
    for path, block in blocks:
        checkpoint()
        match block:
            case wire.ThinkingBlock(thinking=thinking, signature=signature):
                thoughts.append(
                    thinking or unpacker.thinking_in(signature or "", f"{path}.signature")
                )
            case wire.RedactedThinkingBlock():
                continue
            case wire.ToolUseBlock():
                names[block.id] = block.name
                calls.append(_call(block, path))
            case _:
                texts.append(_text((path, block)))
    return chat.AssistantMessage(
        content=_content(filter(None, texts)) if texts or not calls else None,
        tool_calls=calls or None,
        reasoning_content=_content(filter(None, thoughts)) or None,
    )


def _call(block: wire.ToolUseBlock, path: str) -> chat.RequestToolCall:
    arguments = bytes(block.input).strip()
    if not arguments.startswith(b"{"):
        raise invalid(f"{path}.input", f"'{path}.input' must be an object.")
    function = chat.RequestFunctionCall(name=block.name, arguments=arguments.decode())
    return chat.RequestToolCall(id=block.id, type="function", function=function)


def _result(block: wire.ToolResultBlock, path: str) -> str:
    if block.content is None or isinstance(block.content, str):
        return block.content or ""
    return _content(_text((f"{path}.content[{i}]", part)) for i, part in enumerate(block.content))


def _text(placed: Placed) -> str:
    """The text of a block that has one. Raises InvalidRequest for others."""
    path, block = placed
    match block:
        case wire.TextBlock(text=text):
            return text
        case wire.SearchResultBlock():
            return _content([block.title, block.source, *(part.text for part in block.content)])
        case wire.ToolReferenceBlock(tool_name=name):
            return f"The tool {name} is available now."
        case wire.ImageBlock() | wire.DocumentBlock():
            raise unsupported(
                f"{path}.type",
                f"'{path}': blocks of type '{block.type}' are not supported; this model reads text "
                "only.",
            )
        case _:
            raise invalid(path, f"'{path}': a block of type '{block.type}' does not belong here.")


def _content(texts: Iterable[str]) -> str:
    """Blocks, also those of several turns that become one message, are joined by newlines."""
    return "\n".join(texts)
