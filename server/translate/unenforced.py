"""Names the keywords of schemas that are not strict and cannot be enforced."""

from __future__ import annotations

from core.grammar.schema import ignored_keywords
from schemas.chat import ChatCompletionRequest
from schemas.formats import JsonSchemaFormat, JsonSchemaSpec
from schemas.sampling import SamplingFields
from schemas.tools import FunctionTool


def unenforced_keywords(request: SamplingFields) -> tuple[str, ...]:
    """As ``tools.NAME.KEYWORD`` and ``response_format.KEYWORD``.

    A keyword that cannot be enforced is an error in a strict schema. In others it is left out.
    """
    names: list[str] = []
    if isinstance(request, ChatCompletionRequest) and request.tool_choice != "none":
        for tool in request.tools or ():
            if isinstance(tool, FunctionTool) and not tool.function.strict:
                keywords = ignored_keywords(tool.function.parameters or {})
                names += [f"tools.{tool.function.name}.{keyword}" for keyword in keywords]
    match request.response_format:
        case JsonSchemaFormat(json_schema=JsonSchemaSpec(strict=False, schema=dict(schema))):
            names += [f"response_format.{keyword}" for keyword in ignored_keywords(schema)]
    return tuple(names)
