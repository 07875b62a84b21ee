"""The conversation of a Messages request to chat messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TypeAlias

from core.contract.errors import InvalidRequest
from schemas.anthropic import (
    Block,
    RedactedThinkingBlock,
    SearchResultBlock,
    TextBlock,
    ThinkingBlock,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
    Turn,
)
from schemas.messages import (
    AssistantMessage,
    Message,
    RequestFunctionCall,
    RequestToolCall,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from server.admission.pools import checkpoint
from server.apis.anthropic.refusals import invalid, unsupported
from server.apis.anthropic.thinking import Unpacker, thinking_of

Placed: TypeAlias = tuple[str, Block]
"""A block, and its path in the request."""


def chat_messages(
    turns: Sequence[Turn], system: Sequence[str], *, takes_late_system: bool
) -> list[Message]:
    """Consecutive turns of one role become one message. Raises InvalidRequest naming the block.

    ``system`` comes first. Later system messages stay where they are if the chat template takes
    them there, else they become text of the user's.
    """
    messages: list[Message] = []
    if system:
        messages.append(SystemMessage(content=_content(system)))

    def role(placed: tuple[int, Turn]) -> str:
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
                messages.append(SystemMessage(content=_content(map(_text, blocks))))
            case _:
                messages += _user(blocks, names)
    return messages


def _blocks(turn: Turn, path: str) -> list[Placed]:
    if isinstance(turn.content, str):
        return [(path, TextBlock(text=turn.content))]
    return [(f"{path}[{i}]", block) for i, block in enumerate(turn.content)]


def _user(blocks: Sequence[Placed], names: dict[str, str]) -> list[Message]:
    """A message for each result of a call, and for each run of texts. ``names`` are by call id."""
    messages: list[Message] = []
    texts: list[str] = []
    for path, block in blocks:
        if not isinstance(block, ToolResultBlock):
            texts.append(_text((path, block)))
            continue
        if texts:
            messages.append(UserMessage(content=_content(texts)))
            texts = []
        messages.append(
            ToolMessage(
                content=_result(block, path),
                tool_call_id=block.tool_use_id,
                name=names.get(block.tool_use_id),
            )
        )
    if texts or not messages:
        messages.append(UserMessage(content=_content(texts)))
    return messages


def _assistant(blocks: Sequence[Placed], names: dict[str, str], unpacker: Unpacker) -> Message:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[RequestToolCall] = []
    for path, block in blocks:
        checkpoint()
        match block:
            case ThinkingBlock():
                thoughts.append(thinking_of(block, path, unpacker))
            case RedactedThinkingBlock():
                continue
            case ToolUseBlock():
                names[block.id] = block.name
                calls.append(_call(block, path))
            case _:
                texts.append(_text((path, block)))
    return AssistantMessage(
        content=_content([text for text in texts if text]) if texts or not calls else None,
        tool_calls=calls or None,
        reasoning_content="\n".join(filter(None, thoughts)) or None,
    )


def _call(block: ToolUseBlock, path: str) -> RequestToolCall:
    arguments = bytes(block.input).strip()
    if not arguments.startswith(b"{"):
        raise invalid(f"'{path}.input' must be an object.", f"{path}.input")
    function = RequestFunctionCall(name=block.name, arguments=arguments.decode())
    return RequestToolCall(id=block.id, type="function", function=function)


def _result(block: ToolResultBlock, path: str) -> str:
    if block.content is None or isinstance(block.content, str):
        return block.content or ""
    return _content(_text((f"{path}.content[{i}]", part)) for i, part in enumerate(block.content))


def _text(placed: Placed) -> str:
    """The text of a block that has one. Raises InvalidRequest for others."""
    path, block = placed
    match block:
        case TextBlock(text=text):
            return text
        case SearchResultBlock():
            return "\n".join([block.title, block.source, *(part.text for part in block.content)])
        case ToolReferenceBlock(tool_name=name):
            return f"The tool {name} is available now."
        case _:
            raise _unreadable(block, path)


def _unreadable(block: Block, path: str) -> InvalidRequest:
    if block.type in {"image", "document"}:
        return unsupported(
            f"'{path}': blocks of type '{block.type}' are not supported; this model reads text "
            "only.",
            f"{path}.type",
        )
    return invalid(f"'{path}': a block of type '{block.type}' does not belong here.", path)


def _content(texts: Iterable[str]) -> str:
    """Blocks, also those of several turns that become one message, are joined by newlines."""
    return "\n".join(texts)
