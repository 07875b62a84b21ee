"""Items as they are kept: JSON with an id, read again as input items of a later request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import UNSET

from schemas.messages import RefusalPart
from schemas.responses_input import InputContent, InputItem, ReasoningTextPart, SummaryTextPart
from schemas.responses_items import (
    AnyItem,
    FunctionCallItem,
    FunctionCallOutputItem,
    InputText,
    MessageItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    Refusal,
    SummaryText,
)

_decoder = msgspec.json.Decoder(InputItem)


def read_item(data: bytes) -> InputItem:
    """An item that was kept."""
    return _decoder.decode(data)


def kept_item(item: InputItem) -> bytes:
    """An item of a request that has been translated. One without an id gets one."""
    return msgspec.json.encode(_wire(item))


def _wire(item: InputItem) -> AnyItem:
    match item.type:
        case "function_call":
            return FunctionCallItem(
                id=item.id or _new_id("fc"),
                call_id=item.call_id or "",
                name=item.name or "",
                arguments=item.arguments or "",
                status="completed",
                namespace=item.namespace or UNSET,
            )
        case "function_call_output":
            output = item.output or ""
            return FunctionCallOutputItem(
                id=item.id or _new_id("fco"),
                call_id=item.call_id or "",
                output=output if isinstance(output, str) else _input_texts(output),
                status="completed",
            )
        case "reasoning":
            return ReasoningItem(
                id=item.id or _new_id("rs"),
                summary=[
                    SummaryText(text=part.text)
                    for part in item.summary or ()
                    if isinstance(part, SummaryTextPart)
                ],
                content=_reasoning_texts(item.content),
                encrypted_content=item.encrypted_content or UNSET,
            )
        case _:
            role = item.role or "user"
            return MessageItem(
                id=item.id or _new_id("msg"),
                status="completed",
                role=role,
                content=_message_parts(item.content, is_output=role == "assistant"),
                phase=item.phase or UNSET,
            )


def _message_parts(
    content: InputContent | None, *, is_output: bool
) -> list[OutputText | InputText | Refusal]:
    kind = OutputText if is_output else InputText
    if content is None or isinstance(content, str):
        return [kind(text=content or "")]
    return [
        Refusal(refusal=part.refusal) if isinstance(part, RefusalPart) else kind(text=part.text)
        for part in content
        if hasattr(part, "text") or isinstance(part, RefusalPart)
    ]


def _input_texts(content: Sequence[Any]) -> list[InputText]:
    return [InputText(text=part.text) for part in content if hasattr(part, "text")]


def _reasoning_texts(content: InputContent | None) -> Any:
    if content is None:
        return UNSET
    if isinstance(content, str):
        return [ReasoningText(text=content)]
    return [
        ReasoningText(text=part.text) for part in content if isinstance(part, ReasoningTextPart)
    ]


def _new_id(prefix: str) -> str:
    return f"{prefix}_{uuid4().hex}"
