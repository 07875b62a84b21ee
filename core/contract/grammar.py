"""Grammar: a description of the output as plain text in frozen messages.

Nothing here is checked, and no tokenizer is involved: ``core.grammar.compiler`` compiles and checks
a grammar on a worker thread before the request is admitted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from core.contract.errors import InvalidRequest


class Json(msgspec.Struct, frozen=True, tag="json"):
    """A JSON value that satisfies a schema; ``schema`` is JSON text.

    Keywords that cannot be enforced are refused with ``is_strict``; otherwise they are dropped,
    which can only widen the grammar. With ``is_closed`` the default of ``additionalProperties`` is
    false. ``tool`` names the tool whose arguments the value is; it is an object then.
    """

    schema: str
    is_strict: bool = True
    is_closed: bool = True
    is_compact: bool = False
    tool: str = ""


class JsonCall(msgspec.Struct, frozen=True, tag="json_call"):
    """One JSON object: the members of ``head`` (JSON text), then ``key`` with the arguments.

    It matches what ``Markup`` around ``Json`` would, but compiles to a single JSON schema, so it
    can be an alternative to JSON that begins in the same way.
    """

    head: str
    key: str
    schema: str
    is_strict: bool = False
    tool: str = ""


class Regex(msgspec.Struct, frozen=True, tag="regex"):
    """Text that matches all of ``pattern``."""

    pattern: str


class ChoiceGrammar(msgspec.Struct, frozen=True, tag="choice"):
    """One of several texts."""

    options: tuple[str, ...]


class Lark(msgspec.Struct, frozen=True, tag="lark"):
    """A context-free grammar in llguidance's dialect of Lark, or in GBNF."""

    source: str


class Markup(msgspec.Struct, frozen=True, tag="markup"):
    """Exactly this text. Special tokens in it are matched as tokens."""

    text: str


class Concat(msgspec.Struct, frozen=True, tag="concat"):
    """A sequence of grammars."""

    parts: tuple[Grammar, ...]


class Either(msgspec.Struct, frozen=True, tag="either"):
    """One of several grammars."""

    options: tuple[Grammar, ...]


class Repeat(msgspec.Struct, frozen=True, tag="repeat"):
    """``first``, then any number of ``between`` and ``item``."""

    item: Grammar
    between: Grammar
    first: Grammar


class XmlArguments(msgspec.Struct, frozen=True, tag="xml"):
    """The properties of an object schema, each as ``before``, value, ``after``.

    ``{name}`` in ``before`` stands for the property's name. Values are JSON, but those of
    ``type: string`` are plain text up to ``after``. Properties come in the order of the schema;
    those that are not required are optional.
    """

    schema: str
    before: str
    after: str
    is_strict: bool = False
    tool: str = ""


class KeywordArguments(msgspec.Struct, frozen=True, tag="keywords"):
    """The properties of an object schema as ``name=value, name=value``; values are JSON."""

    schema: str
    is_strict: bool = False
    tool: str = ""


class Tag(msgspec.Struct, frozen=True):
    """In free text, ``trigger`` is followed by ``content``."""

    trigger: str
    content: Grammar


class Tags(msgspec.Struct, frozen=True, tag="tags"):
    """Free text in which the content of a tag must follow its trigger.

    With ``is_single`` nothing follows the first tag. With ``only_at_start`` a trigger applies
    only at the start of the text, and free text may not begin with its first character.
    """

    tags: tuple[Tag, ...]
    is_single: bool = False
    only_at_start: bool = False


class After(msgspec.Struct, frozen=True, tag="after"):
    """Free text up to and including ``end``, at most two line breaks, then ``grammar``.

    With ``begin`` the free text starts with it and is optional.
    """

    end: str
    grammar: Grammar
    begin: str | None = None


Grammar: TypeAlias = (
    Json
    | JsonCall
    | Regex
    | ChoiceGrammar
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


DroppedKeyword: TypeAlias = tuple[str, str]
"""The name of a tool, empty for a format of the answer, and a keyword of its schema that is not
enforced."""


class CallMarkup(msgspec.Struct, frozen=True, kw_only=True):
    """The tool call format of a family of models.

    ``{name}`` in ``before`` stands for the tool's name. Calls are ``opening``, then for each call
    ``before``, its arguments and ``after``, separated by ``between``, then ``closing``. ``trigger``
    opens a call in free text, with ``only_at_start`` only at the start of the output; it is a
    prefix of ``opening`` + ``before`` that all tools share. ``arguments`` are one JSON object,
    ``xml`` with ``xml_before`` and ``xml_after`` around each value, or ``keywords`` as in Python.
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
    """A tool. ``parameters`` is the JSON Schema of its arguments; None is no arguments."""

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
    """A JSON value that satisfies ``schema``, with its keys in the order of the schema.

    Whitespace is at most one space or one indented line break where JSON allows it; with
    ``is_compact`` there is none.
    """
    return Json(_text(schema), is_strict, is_closed, is_compact)


def json_object(*, is_compact: bool = False) -> Grammar:
    """Any JSON object."""
    return json_schema({"type": "object"}, is_closed=False, is_compact=is_compact)


def regex(pattern: str) -> Grammar:
    return Regex(pattern)


def choice(options: Sequence[str]) -> Grammar:
    return ChoiceGrammar(tuple(options))


def lark(source: str) -> Grammar:
    """A context-free grammar in Lark (``name: ...``) or GBNF (``name ::= ...``)."""
    return Lark(source)


def structural_tags(
    tags: Sequence[tuple[str, Mapping[str, Any] | bool, str]], triggers: Sequence[str]
) -> Grammar:
    """Free text with tags ``(begin, schema, end)``, each after its trigger.

    A tag's trigger is the longest of ``triggers`` that is a prefix of ``begin``. A tag without a
    trigger is refused when the grammar is checked.
    """
    found = []
    for begin, schema, end in tags:
        trigger = max((t for t in triggers if begin.startswith(t)), key=len, default="")
        rest = begin.removeprefix(trigger)
        content = json_schema(schema, is_strict=False)
        found.append(Tag(trigger, Concat((Markup(rest), content, Markup(end)))))
    return Tags(tuple(found))


def tool_calls(
    tools: Sequence[ToolSpec], markup: CallMarkup, *, is_single: bool = False
) -> Grammar:
    """One or more calls of ``tools`` and nothing else; exactly one with ``is_single``."""
    return _calls(tools, markup, is_single=is_single)


def tool_calls_in_text(
    tools: Sequence[ToolSpec], markup: CallMarkup, *, is_single: bool = False
) -> Grammar:
    """Free text with calls of ``tools``; with ``is_single`` the text ends after one call.

    If calls have ``opening`` or ``closing`` or stand ``only_at_start``, the text ends after one
    block of calls; otherwise text and more calls may follow.
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

    Without ``begin`` the output starts inside the thinking, which must end. With ``begin`` the
    output starts with it and the thinking, or directly with ``grammar``.
    """
    return After(end, grammar, begin)


def can_always_continue(grammar: Grammar) -> bool:
    """Whether the output can be continued at every point."""
    match grammar:
        case Tags(is_single=is_single):
            return not is_single
        case After(grammar=inner):
            return can_always_continue(inner)
        case _:
            return False


def has_json(grammar: Grammar) -> bool:
    """Whether JSON values of schemas are part of the output."""
    match grammar:
        case Json() | JsonCall() | XmlArguments() | KeywordArguments():
            return True
        case Concat(parts=parts) | Either(options=parts):
            return any(map(has_json, parts))
        case Repeat(item=item, between=between, first=first):
            return any(map(has_json, (item, between, first)))
        case Tags(tags=tags):
            return any(has_json(tag.content) for tag in tags)
        case After(grammar=inner):
            return has_json(inner)
        case _:
            return False


def _calls(
    tools: Sequence[ToolSpec], markup: CallMarkup, *, is_single: bool, skip: str = ""
) -> Grammar:
    """The calls with their markup, without its prefix ``skip``."""
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
        return JsonCall(json.dumps(head), key, _schema_of(tool), tool.is_strict, tool.name)
    return Concat((Markup(before[len(skip) :]), _arguments(tool, markup), Markup(markup.after)))


def _arguments(tool: ToolSpec, markup: CallMarkup) -> Grammar:
    schema = _schema_of(tool)
    match markup.arguments:
        case "json":
            return Json(schema, is_strict=tool.is_strict, tool=tool.name)
        case "xml":
            return XmlArguments(
                schema, markup.xml_before, markup.xml_after, tool.is_strict, tool.name
            )
        case "keywords":
            return KeywordArguments(schema, tool.is_strict, tool.name)


def _schema_of(tool: ToolSpec) -> str:
    """JSON text of the schema of the arguments."""
    parameters = tool.parameters
    if parameters is None:
        return _text({"type": "object", "properties": {}, "additionalProperties": False})
    return _text(parameters)


def _text(schema: Mapping[str, Any] | bool) -> str:
    try:
        return json.dumps(schema, separators=(",", ":"))
    except RecursionError as error:
        raise InvalidRequest(
            "Invalid schema: it is nested too deeply.", code="invalid_schema"
        ) from error
