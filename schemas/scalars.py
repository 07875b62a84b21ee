"""Types of JSON values that several objects use."""

from typing import Annotated, Any, TypeAlias

from msgspec import Meta

INT32_MAX = 2**31 - 1
"""Maximum of integers that the engine puts into 32-bit tensors."""

JsonObject: TypeAlias = dict[str, Any]
"""Any JSON object, as plain Python data (JSON Schemas, template arguments)."""

TokenId = Annotated[int, Meta(ge=0, le=INT32_MAX)]
"""A token id. The server checks it against the vocabulary."""

TokenIdList = Annotated[list[TokenId], Meta(max_length=128)]
"""A short list of token ids."""

NonEmptyStr = Annotated[str, Meta(min_length=1)]

StopString = Annotated[str, Meta(min_length=1, max_length=1024)]

# Python's `$` also matches before a final newline. The look-ahead prevents that. It has no effect
# in ECMA regular expressions, which readers of the OpenAPI document use.
Name = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}$(?!\n)")]
"""Name of a function, of a custom tool or of a response schema (OpenAI API reference)."""
