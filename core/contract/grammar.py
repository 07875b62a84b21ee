"""Grammar: what an answer may look like. Plain text in frozen messages, made by pure functions.

Nothing here knows a tokenizer or checks anything: ``core.grammar.compiler`` does both, on a
worker thread, before a request is admitted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from core.contract.errors import InvalidRequest


class Json(msgspec.Struct, frozen=True, tag="json"):
    """A JSON value that a schema describes; ``schema`` is the schema's own JSON text.

    ``is_strict`` decides about keywords that cannot be enforced: refused, or left out, which
    makes the grammar wider and never narrower. ``is_closed`` takes objects that say nothing of
    ``additionalProperties`` as if they forbade them.
    """

    schema: str
    is_strict: bool = True
    is_closed: bool = True
    is_compact: bool = False


class JsonCall(msgspec.Struct, frozen=True, tag="json_call"):
    """One JSON object: the members of ``head``, an object's JSON text, then ``key`` and arguments.

    It says what ``Markup`` around ``Json`` would, and goes together with other JSON that begins
    in the same way.
    """

    head: str
    key: str
    schema: str
    is_strict: bool = False


class Regex(msgspec.Struct, frozen=True, tag="regex"):
    """Text that matches ``pattern`` from its first to its last character."""

    pattern: str


class Choice(msgspec.Struct, frozen=True, tag="choice"):
    """One of several texts."""

    options: tuple[str, ...]


class Lark(msgspec.Struct, frozen=True, tag="lark"):
    """A context-free grammar in llguidance's dialect of Lark, or in GBNF."""

    source: str


class Markup(msgspec.Struct, frozen=True, tag="markup"):
    """Exactly this text. Special tokens of the model that stand in it are those tokens."""

    text: str


class Concat(msgspec.Struct, frozen=True, tag="concat"):
    """One part after the other."""

    parts: tuple[Grammar, ...]


class Either(msgspec.Struct, frozen=True, tag="either"):
    """One of several grammars."""

    options: tuple[Grammar, ...]


class Repeat(msgspec.Struct, frozen=True, tag="repeat"):
    """``first``, then as often as wanted ``between`` and ``item``."""

    item: Grammar
    between: Grammar
    first: Grammar


class XmlArguments(msgspec.Struct, frozen=True, tag="xml"):
    """The properties of an object schema, each as ``before``, value, ``after``.

    ``{name}`` in ``before`` stands for the property's name. Values are JSON, except where the
    schema says ``type: string``: these are plain text up to ``after``. Properties come in the
    schema's order, and those that are not required may be left out.
    """

    schema: str
    before: str
    after: str
    is_strict: bool = False


class KeywordArguments(msgspec.Struct, frozen=True, tag="keywords"):
    """The properties of an object schema as ``name=value, name=value``; values are JSON."""

    schema: str
    is_strict: bool = False


class Tag(msgspec.Struct, frozen=True):
    """What follows ``trigger`` in a text that is free otherwise."""

    trigger: str
    content: Grammar


class Tags(msgspec.Struct, frozen=True, tag="tags"):
    """Free text, in which each trigger must be followed by the content of one of its tags.

    With ``is_single`` nothing follows the first tag. With ``only_at_start`` a trigger counts
    only where the text begins, and free text may not begin with its first character.
    """

    tags: tuple[Tag, ...]
    is_single: bool = False
    only_at_start: bool = False


class After(msgspec.Struct, frozen=True, tag="after"):
    """Free text up to and including ``end``, then at most two line ends, then ``grammar``.

    With ``begin`` that free part must start with it, and may be missing altogether.
    """

    end: str
    grammar: Grammar
    begin: str | None = None


Grammar: TypeAlias = (
    Json
    | JsonCall
    | Regex
    | Choice
    | Lark
    | Markup
    | Concat
    | Either
    | Repeat
    | XmlArguments
    | KeywordArguments
    | Tags
    | After
)


class CallMarkup(msgspec.Struct, frozen=True, kw_only=True):
    """How a family of models writes tool calls.

    ``{name}`` in ``before`` stands for the tool's name. One or more calls are ``opening``, then
    ``before`` arguments ``after`` for each with ``between`` in between, then ``closing``.
    ``trigger`` is what opens a call in free text: where ``opening`` + ``before`` begins, the
    same for every tool. With ``only_at_start`` it does so only where the answer begins.
    ``arguments`` is one JSON object, or ``xml`` with ``xml_before`` and ``xml_after`` around each
    value, or ``keywords`` as in Python.
    """

    trigger: str
    before: str
    after: str
    opening: str = ""
    between: str = ""
    closing: str = ""
    only_at_start: bool = False
    arguments: Literal["json", "xml", "keywords"] = "json"
    xml_before: str = ""
    xml_after: str = ""


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool to call. ``parameters`` is the JSON Schema of its arguments, None for no arguments."""

    name: str
    parameters: Mapping[str, Any] | None = None
    is_strict: bool = False


def json_schema(
    schema: Mapping[str, Any] | bool,
    *,
    is_strict: bool = True,
    is_closed: bool = True,
    is_compact: bool = False,
) -> Grammar:
    """A JSON value that satisfies ``schema``; keys in the schema's order, nothing around it.

    Whitespace is at most one space or one indented line end where JSON allows any, or with
    ``is_compact`` none at all.
    """
    return Json(_text(schema), is_strict, is_closed, is_compact)


def json_object(*, is_compact: bool = False) -> Grammar:
    """Any JSON object."""
    return json_schema({"type": "object"}, is_closed=False, is_compact=is_compact)


def regex(pattern: str) -> Grammar:
    """Text that matches ``pattern`` as a whole."""
    return Regex(pattern)


def choice(options: Sequence[str]) -> Grammar:
    """One of ``options``."""
    return Choice(tuple(options))


def lark(source: str) -> Grammar:
    """A context-free grammar, in Lark (rules ``name: ...``) or GBNF (``name ::= ...``)."""
    return Lark(source)


def structural_tags(
    tags: Sequence[tuple[str, Mapping[str, Any] | bool, str]], triggers: Sequence[str]
) -> Grammar:
    """Free text until a trigger, then the tag that begins so: ``(begin, schema, end)`` each.

    A tag belongs to the longest of ``triggers`` that it begins with; one that begins with none
    is never reached, and refused when the grammar is checked.
    """
    found = []
    for begin, schema, end in tags:
        trigger = max((t for t in triggers if begin.startswith(t)), key=len, default="")
        rest = begin.removeprefix(trigger)
        found.append(Tag(trigger, Concat((Markup(rest), json_schema(schema), Markup(end)))))
    return Tags(tuple(found))


def tool_calls(
    tools: Sequence[ToolSpec], markup: CallMarkup, *, is_single: bool = False
) -> Grammar:
    """One or more calls of ``tools`` and nothing else; exactly one with ``is_single``."""
    return _calls(tools, markup, is_single=is_single)


def tool_calls_in_text(
    tools: Sequence[ToolSpec], markup: CallMarkup, *, is_single: bool = False
) -> Grammar:
    """Free text; what opens a call must become one. With ``is_single`` one call ends the text.

    Where calls are wrapped (``opening``, ``closing``) or stand ``only_at_start``, one such block
    ends the text; else text and further calls may follow.
    """
    is_block = bool(markup.opening or markup.closing or markup.only_at_start)
    content = _calls(tools, markup, is_single=is_single or not is_block, skip=markup.trigger)
    return Tags(
        (Tag(markup.trigger, content),),
        is_single=is_single or is_block,
        only_at_start=markup.only_at_start,
    )


def after(grammar: Grammar, end: str = "</think>", *, begin: str | None = None) -> Grammar:
    """Anything up to and including ``end``, then ``grammar``.

    Without ``begin`` the prompt has opened the thinking already, and it must be ended. With
    ``begin`` the model may think, beginning so, or answer at once.
    """
    return After(end, grammar, begin)


def can_always_go_on(grammar: Grammar) -> bool:
    """Whether no answer is so complete that only its end can follow."""
    match grammar:
        case Tags(is_single=is_single):
            return not is_single
        case After(grammar=inner):
            return can_always_go_on(inner)
        case _:
            return False


def _calls(
    tools: Sequence[ToolSpec], markup: CallMarkup, *, is_single: bool, skip: str = ""
) -> Grammar:
    """The calls with all that is around them, without the ``skip`` that they begin with."""
    opening = markup.opening
    assert (opening + markup.before).startswith(skip)
    call = _call(tools, markup)
    first = _call(tools, markup, skip=skip[len(opening) :])
    calls = first if is_single else Repeat(call, Markup(markup.between), first)
    return Concat((Markup(opening[len(skip) :]), calls, Markup(markup.closing)))


def _call(tools: Sequence[ToolSpec], markup: CallMarkup, *, skip: str = "") -> Grammar:
    return Either(tuple(_call_of(tool, markup, skip) for tool in tools))


def _call_of(tool: ToolSpec, markup: CallMarkup, skip: str) -> Grammar:
    before = markup.before.replace("{name}", tool.name)
    if not skip and markup.arguments == "json" and before.startswith("{") and markup.after == "}":
        head = json.loads(before + "null" + markup.after)
        key, _ = head.popitem()
        return JsonCall(json.dumps(head), key, _schema_of(tool), tool.is_strict)
    return Concat((Markup(before[len(skip) :]), _arguments(tool, markup), Markup(markup.after)))


def _arguments(tool: ToolSpec, markup: CallMarkup) -> Grammar:
    schema = _schema_of(tool)
    match markup.arguments:
        case "json":
            return Json(schema, is_strict=tool.is_strict)
        case "xml":
            return XmlArguments(schema, markup.xml_before, markup.xml_after, tool.is_strict)
        case "keywords":
            return KeywordArguments(schema, tool.is_strict)


def _schema_of(tool: ToolSpec) -> str:
    """Arguments are an object, whether or not the schema says so."""
    parameters = tool.parameters
    if parameters is None:
        return _text({"type": "object", "properties": {}, "additionalProperties": False})
    return _text(parameters if "type" in parameters else {"type": "object", **parameters})


def _text(schema: Mapping[str, Any] | bool) -> str:
    try:
        return json.dumps(schema, separators=(",", ":"))
    except RecursionError as error:
        raise InvalidRequest(
            "Invalid schema: it is nested too deeply.", code="invalid_schema"
        ) from error
