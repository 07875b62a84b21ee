"""Fields that constrain the output: `response_format`, `structured_outputs` and older ones."""

from typing import Annotated, TypeAlias

from msgspec import Meta

from schemas.base import RequestModel
from schemas.limits import MAX_OPTIONS
from schemas.llama_cpp import LlamaCppFields
from schemas.scalars import Description, JsonObject, JsonObjectList, Label, LabelList, Name

Options = Annotated[list[Description], Meta(min_length=1, max_length=MAX_OPTIONS)]
"""Texts of which the output must be one."""


class TextFormat(RequestModel, tag_field="type", tag="text", frozen=True, kw_only=True):
    """Free text, the default (OpenAI API reference)."""


class JsonObjectFormat(
    RequestModel, tag_field="type", tag="json_object", frozen=True, kw_only=True
):
    """One JSON object. `schema` is llama.cpp's spelling of a json_schema format."""

    schema: JsonObject | None = None


class JsonSchemaSpec(RequestModel, frozen=True, kw_only=True):
    """The schema of a json_schema format (OpenAI API reference)."""

    name: Name
    description: Description | None = None
    schema: JsonObject | None = None
    strict: bool | None = None


class JsonSchemaFormat(
    RequestModel, tag_field="type", tag="json_schema", frozen=True, kw_only=True
):
    """JSON that matches a schema, in OpenAI's field `json_schema` or llama.cpp's `schema`.

    The server checks that one of the two is given.
    """

    json_schema: JsonSchemaSpec | None = None
    schema: JsonObject | None = None


class StructuralTagFormat(
    RequestModel, tag_field="type", tag="structural_tag", frozen=True, kw_only=True
):
    """Constrained spans between literal tags (vLLM and SGLang)."""

    format: JsonObject | None = None
    structures: JsonObjectList | None = None
    triggers: LabelList | None = None


ResponseFormat: TypeAlias = TextFormat | JsonObjectFormat | JsonSchemaFormat | StructuralTagFormat


class StructuredOutputs(RequestModel, frozen=True, kw_only=True):
    """vLLM's `structured_outputs`.

    The server checks that exactly one of json, regex, choice, grammar, json_object and
    structural_tag is given. A `json` string is a JSON Schema as text.
    """

    json: Description | JsonObject | None = None
    regex: Description | None = None
    choice: Options | None = None
    grammar: Description | None = None
    json_object: bool | None = None
    structural_tag: Description | JsonObject | None = None
    disable_any_whitespace: bool | None = None
    disable_additional_properties: bool | None = None
    whitespace_pattern: Label | None = None


class ConstraintFields(LlamaCppFields, frozen=True, kw_only=True):
    """All top-level spellings of an output constraint. At most one may be given.

    The server enforces a constraint or refuses it by name. It never ignores one.
    """

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Description | JsonObject | None = None
    guided_regex: Description | None = None
    guided_choice: Options | None = None
    guided_grammar: Description | None = None
    guided_json_object: bool | None = None
    guided_decoding_backend: Label | None = None
    guided_whitespace_pattern: Label | None = None
    structural_tag: Description | JsonObject | None = None
    regex: Description | None = None
    ebnf: Description | None = None
    json_schema: Description | JsonObject | None = None
    grammar: Description | None = None
