"""Tools of a request, the choice among them, and calls (OpenAI API reference)."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from schemas.base import RequestModel, ResponseModel
from schemas.limits import MAX_TOOLS
from schemas.scalars import Description, FunctionName, JsonObject, Label


class FunctionDefinition(RequestModel, frozen=True, kw_only=True):
    """A function. `parameters` is a JSON Schema. Without it the function takes no arguments."""

    name: FunctionName
    description: Description | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class CustomDefinition(RequestModel, frozen=True, kw_only=True):
    """A tool with free-form input."""

    name: FunctionName
    description: Description | None = None
    format: JsonObject | None = None


class FunctionTool(RequestModel, tag_field="type", tag="function", frozen=True, kw_only=True):
    """A function the model may call."""

    function: FunctionDefinition


class CustomTool(RequestModel, tag_field="type", tag="custom", frozen=True, kw_only=True):
    """A custom tool. Declared so that the server can refuse it by name."""

    custom: CustomDefinition


Tool: TypeAlias = FunctionTool | CustomTool

Tools = Annotated[list[Tool], Meta(max_length=MAX_TOOLS, description="Tools the model may call.")]
Functions = Annotated[
    list[FunctionDefinition], Meta(max_length=MAX_TOOLS, description="Deprecated form of tools.")
]


class ToolName(RequestModel, frozen=True, kw_only=True):
    """The name of a tool."""

    name: Label


class FunctionToolChoice(RequestModel, tag_field="type", tag="function", frozen=True, kw_only=True):
    """This function must be called."""

    function: ToolName


class CustomToolChoice(RequestModel, tag_field="type", tag="custom", frozen=True, kw_only=True):
    """This custom tool. Declared so that the server can refuse it by name."""

    custom: ToolName


class AllowedTools(RequestModel, frozen=True, kw_only=True):
    """A subset of the tools, and whether one of them must be called."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[FunctionToolChoice | CustomToolChoice], Meta(max_length=MAX_TOOLS)]


class AllowedToolsChoice(
    RequestModel, tag_field="type", tag="allowed_tools", frozen=True, kw_only=True
):
    """Only these tools may be called. The prompt still lists all tools."""

    allowed_tools: AllowedTools


ToolChoice: TypeAlias = (
    Literal["none", "auto", "required"] | FunctionToolChoice | CustomToolChoice | AllowedToolsChoice
)
FunctionCallChoice: TypeAlias = Literal["none", "auto"] | ToolName
"""Deprecated form of ToolChoice."""


class FunctionCall(ResponseModel, frozen=True, kw_only=True):
    """A call in an answer. `arguments` is JSON as text, `{}` for no arguments."""

    name: str
    arguments: str


class ToolCall(ResponseModel, frozen=True, kw_only=True):
    """One tool call of an answer. `id` is unique within the conversation."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall
