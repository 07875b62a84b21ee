"""Names the keywords of schemas that are not strict and cannot be enforced."""

from __future__ import annotations

from collections.abc import Sequence

from core.grammar.schema import ignored_keywords
from schemas.formats import JsonSchemaFormat, JsonSchemaSpec
from schemas.sampling import SamplingFields
from schemas.tools import FunctionDefinition


def unenforced_keywords(
    request: SamplingFields, functions: Sequence[FunctionDefinition] = ()
) -> tuple[str, ...]:
    """As ``tools.NAME.KEYWORD`` of the functions that may be called, ``response_format.KEYWORD``.

    A keyword that cannot be enforced is an error in a strict schema. In others it is left out.
    """
    names = [
        f"tools.{function.name}.{keyword}"
        for function in functions
        if function.parameters and not function.strict
        for keyword in ignored_keywords(function.parameters)
    ]
    match request.response_format:
        case JsonSchemaFormat(json_schema=JsonSchemaSpec(strict=False, schema=dict(schema))):
            names += [f"response_format.{keyword}" for keyword in ignored_keywords(schema)]
    return tuple(names)
