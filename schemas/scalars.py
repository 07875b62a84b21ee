"""Types of JSON values that several objects use. Each has a limit of ``schemas.limits``."""

from typing import Annotated, Any, TypeAlias

from msgspec import Meta

from schemas.limits import (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    MAX_DESCRIPTION,
    MAX_FUNCTION_NAME,
    MAX_ITEMS,
    MAX_LABEL,
    MAX_NUMBER,
    MAX_PRIORITY,
    MAX_STOP,
    MAX_STOP_LENGTH,
    MAX_TEXT,
    MAX_TOKEN_IDS,
)

JsonObject: TypeAlias = Annotated[dict[str, Any], Meta(max_length=MAX_ITEMS)]
"""Any JSON object, as plain Python data (JSON Schemas, template arguments)."""

Text = Annotated[str, Meta(max_length=MAX_TEXT)]

Description = Annotated[str, Meta(max_length=MAX_DESCRIPTION)]

Label = Annotated[str, Meta(max_length=MAX_LABEL)]

LabelList = Annotated[list[Label], Meta(max_length=MAX_ITEMS)]

JsonObjectList = Annotated[list[JsonObject], Meta(max_length=MAX_ITEMS)]

Int64 = Annotated[int, Meta(ge=INT64_MIN, le=INT64_MAX)]

Number = Annotated[float, Meta(ge=-MAX_NUMBER, le=MAX_NUMBER)]

TokenId = Annotated[int, Meta(ge=0, le=INT32_MAX)]
"""A token id. The server checks it against the vocabulary."""

TokenIdList = Annotated[list[TokenId], Meta(max_length=MAX_TOKEN_IDS)]
"""A short list of token ids."""

Priority = Annotated[
    int,
    Meta(
        ge=-MAX_PRIORITY,
        le=MAX_PRIORITY,
        description="Of a tenant's waiting requests, those with lower values go first; 0: default.",
    ),
]

StopString = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_LENGTH)]

StopStrings: TypeAlias = (
    Annotated[str, Meta(max_length=MAX_STOP_LENGTH)]
    | Annotated[list[StopString], Meta(max_length=MAX_STOP)]
)
"""One, which may be empty, or several."""

# Python's `$` also matches before a final newline. The look-ahead prevents that. It has no effect
# in ECMA regular expressions, which readers of the OpenAPI document use.
Name = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}$(?!\n)", max_length=64)]
"""Name of a response schema (OpenAI API reference)."""

# As Name. Agents join the name of a tool to that of its server, with a dot.
FunctionName = Annotated[
    str,
    Meta(pattern=rf"^[a-zA-Z0-9_.-]{{1,{MAX_FUNCTION_NAME}}}$(?!\n)", max_length=MAX_FUNCTION_NAME),
]
"""Name of a function or of a custom tool. OpenAI allows 64 characters and no dot."""
