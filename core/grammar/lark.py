"""Writes grammars in llguidance's dialect of Lark.

The output is one main grammar of context-free rules, and one more for each Lark or GBNF grammar
of a client, so that names cannot clash. Source of the syntax: llguidance, docs/syntax.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, assert_never

import llguidance
import llguidance.gbnf_to_lark

from core.contract.errors import InvalidRequest
from core.contract.grammar import (
    After,
    Choice,
    Concat,
    Either,
    Grammar,
    Json,
    JsonCall,
    KeywordArguments,
    Lark,
    Markup,
    Regex,
    Repeat,
    Tags,
    XmlArguments,
)
from core.grammar.schema import prepare_schema

MAX_LARK_BYTES = 320 * 1024
"""Largest text of ``to_lark``, in bytes (it is ASCII). Annotations of schemas are not in it."""

MAX_RULES = 5000
"""Rules in a grammar of a client: each may lead to another one."""

_SPACE = r"[ ]|\n[ \t]{0,32}"
"""Whitespace where JSON allows any: one space, or a line break and its indentation."""

_HEAD = """%llguidance {"no_forcing": true}
TEXT: /(.|\\n)*/
GAP: /\\n{0,2}/
"""
# Forcing would write fixed text in the tokenizer's own tokens and call it for each mask.


def to_lark(
    grammar: Grammar,
    *,
    special_ids: Mapping[str, int],
    end_ids: frozenset[int],
    is_lenient: bool = False,
) -> str:
    """Return the grammar as JSON text for llguidance.

    ``special_ids`` maps the text of special tokens to their ids; ``end_ids`` end an answer and are
    never part of free text. With ``is_lenient`` a schema that is not strict allows any object.
    Raises InvalidRequest for schemas, regexes and grammars that cannot be written.
    """
    writer = _Writer(special_ids, end_ids, is_lenient=is_lenient)
    start = writer.write(grammar)
    rules = "\n".join([f"{_HEAD}start: {start}", *writer.rules])
    grammars = [{"name": "main", "lark_grammar": rules}, *writer.others]
    return json.dumps({"grammars": grammars})


class _Writer:
    def __init__(
        self, special_ids: Mapping[str, int], end_ids: frozenset[int], *, is_lenient: bool
    ) -> None:
        self.rules: list[str] = []
        self.others: list[dict[str, str]] = []
        self._special_ids = special_ids
        self._is_lenient = is_lenient
        self._split = re.compile(
            "(" + "|".join(map(re.escape, sorted(special_ids, key=len, reverse=True))) + ")"
        )
        self._free_ids = frozenset(special_ids.values()) - end_ids
        self._num_names = 0
        self._num_chars = 0

    def write(self, grammar: Grammar) -> str:  # noqa: C901, PLR0911, PLR0912 - one case per type
        """Return an expression for the grammar, in parentheses where needed."""
        match grammar:
            case Json():
                return self._json(
                    json.loads(grammar.schema),
                    is_strict=grammar.is_strict,
                    is_closed=grammar.is_closed,
                    is_compact=grammar.is_compact,
                )
            case JsonCall():
                return self._json_call(grammar)
            case Regex(pattern=pattern):
                return self._rule(f"/{llguidance.regex_to_lark(pattern, 'dw')}/")
            case Choice(options=options):
                if not options:
                    raise InvalidRequest("There is nothing to choose.", code="invalid_grammar")
                return self._rule(" | ".join(map(_quoted, options)), is_terminal=True)
            case Lark(source=source):
                return self._other(source)
            case Markup(text=text):
                return self._markup(text)
            case Concat(parts=parts):
                return " ".join(filter(None, map(self.write, parts))) or '""'
            case Either(options=options):
                written = [self.write(option) or '""' for option in options]
                return written[0] if len(written) == 1 else self._rule(" | ".join(written))
            case Repeat(item=item, between=between, first=first):
                head = self.write(first)
                more = f"{self.write(between)} {self.write(item)}"
                return f"{head} ({more})*"
            case XmlArguments():
                return self._xml(grammar)
            case KeywordArguments():
                return self._keywords(grammar)
            case Tags():
                return self._tags(grammar)
            case After():
                return self._after(grammar)
            case _:
                assert_never(grammar)

    def _rule(self, expression: str, *, is_terminal: bool = False, options: str = "") -> str:
        """Add a rule for the expression and return its name."""
        self._num_names += 1
        name = f"{'T' if is_terminal else 'r'}{self._num_names}"
        self._num_chars += len(expression)
        if self._num_chars > MAX_LARK_BYTES:
            raise InvalidRequest(
                f"The grammar is too large: it expands to more than {MAX_LARK_BYTES} bytes.",
                code="invalid_grammar",
            )
        self.rules.append(f"{name}{options}: {expression}")
        return name

    def _other(self, source: str) -> str:
        try:
            source = llguidance.gbnf_to_lark.any_to_lark(source)
        except Exception as error:  # bare ones; RecursionError if it is deep
            raise InvalidRequest(
                f"The grammar is neither Lark nor GBNF: {str(error)[:200]}", code="invalid_grammar"
            ) from error
        if source.count(":") > MAX_RULES:
            raise InvalidRequest(
                f"The grammar has more than {MAX_RULES} rules.", code="invalid_grammar"
            )
        name = f"other{len(self.others)}"
        if not source.lstrip().startswith("%llguidance"):
            source = f'%llguidance {{"no_forcing": true}}\n{source}'
        self.others.append({"name": name, "lark_grammar": source})
        return f"@{name}"

    def _json(
        self, schema: Any, *, is_strict: bool, is_closed: bool = True, is_compact: bool = False
    ) -> str:
        schema = self._prepare(schema, is_strict=is_strict, is_closed=is_closed)
        if schema is False:
            raise InvalidRequest("Invalid schema: nothing satisfies it.", code="invalid_schema")
        space: dict[str, Any] = (
            {"whitespace_flexible": False} if is_compact else {"whitespace_pattern": _SPACE}
        )
        schema = {} if schema is True else schema
        text = json.dumps({"x-guidance": space, **schema}, separators=(",", ":"))
        return self._rule(f"%json {text}")

    def _prepare(self, schema: Any, *, is_strict: bool, is_closed: bool = True) -> Any:
        if self._is_lenient and not is_strict:
            return {"type": "object"}
        return prepare_schema(schema, is_strict=is_strict, is_closed=is_closed)

    def _json_call(self, grammar: JsonCall) -> str:
        arguments = self._prepare(json.loads(grammar.schema), is_strict=grammar.is_strict)
        properties = {key: {"const": value} for key, value in json.loads(grammar.head).items()}
        place = grammar.key.replace("~", "~0").replace("/", "~1")
        properties[grammar.key] = _moved(arguments, f"/properties/{place}")
        call = {
            "x-guidance": {"whitespace_pattern": _SPACE},
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        return self._rule(f"%json {json.dumps(call, separators=(',', ':'))}")

    def _markup(self, text: str) -> str:
        pieces = self._split.split(text) if self._special_ids else [text]
        return " ".join(
            f"<[{self._special_ids[piece]}]>" if piece in self._special_ids else _quoted(piece)
            for piece in pieces
            if piece
        )

    def _free(self, *stops: str, text: str = "TEXT") -> str:
        """Return a rule for free text that ends with a special token not in ``stops``."""
        ids = self._free_ids - {self._special_ids.get(stop) for stop in stops}
        return self._rule(f"{text} <[{','.join(map(str, sorted(ids)))}]>") if ids else ""

    def _until(self, marker: str) -> str:
        """Return an expression for free text up to and including a marker."""
        if marker in self._special_ids:
            return f"TEXT <[{self._special_ids[marker]}]>"
        return self._rule(f"TEXT {_quoted(marker)}", options="[lazy]")

    def _tags(self, grammar: Tags) -> str:
        contents: dict[str, list[str]] = {}
        for tag in grammar.tags:
            if not tag.trigger:
                raise InvalidRequest(
                    "Every structural tag must begin with one of the triggers.",
                    code="invalid_grammar",
                )
            contents.setdefault(tag.trigger, []).append(self.write(tag.content))
        tags = {trigger: self._rule(" | ".join(options)) for trigger, options in contents.items()}
        if grammar.only_at_start:
            first = "".join(sorted({re.escape(trigger[0]) for trigger in tags}))
            text = self._rule(f"/(\\s*[^{first}\\s](.|\\n)*)?/")
            options = [text]
            if begin := self._free(*tags, text=text):
                options.append(f"{begin} ({self._free(*tags)})* TEXT")
            calls = [f"{self._markup(trigger)} {rule}" for trigger, rule in tags.items()]
            return self._rule(" | ".join([*options, *calls]))
        free = self._free(*tags)
        calls = [f"{self._until(trigger)} {rule}" for trigger, rule in tags.items()]
        if grammar.is_single:
            head = f"({free})*" if free else ""
            return self._rule(f"{head} (TEXT | {' | '.join(calls)})")
        return self._rule(f"({' | '.join(filter(None, [free, *calls]))})* TEXT")

    def _after(self, grammar: After) -> str:
        inner = self._rule(self.write(grammar.grammar))
        free = self._free(grammar.end)
        thinking = f"({free})* {self._until(grammar.end)}" if free else self._until(grammar.end)
        if grammar.begin is None:
            return f"{thinking} GAP {inner}"
        return self._rule(f"({self._markup(grammar.begin)} {thinking} GAP)? {inner}")

    def _xml(self, grammar: XmlArguments) -> str:
        schema = json.loads(grammar.schema)
        arguments = []
        for name, own, is_required in _properties(schema, is_strict=grammar.is_strict):
            before = self._markup(grammar.before.replace("{name}", name))
            if isinstance(own, dict) and own.get("type") == "string":
                value = self._text(own, grammar.after)
            else:
                value = f"{self._value(own, schema, grammar)} {self._markup(grammar.after)}"
            argument = f"{before} {value}"
            arguments.append(argument if is_required else f"({argument})?")
        return " ".join(arguments)

    def _text(self, own: dict[str, Any], after: str) -> str:
        """Return an expression for an unquoted string and ``after``. Ignores ``format``."""
        if "const" in own or "enum" in own:
            values = own.get("enum", [own.get("const")])
            options = " | ".join(_quoted(str(value)) for value in values)
            return f"{self._rule(options, is_terminal=True)} {self._markup(after)}"
        limits = []
        if "pattern" in own:
            pattern = str(own["pattern"])
            head = "" if pattern.startswith("^") else r"(.|\n)*"
            tail = "" if pattern.endswith("$") else r"(.|\n)*"
            limits.append(f"{head}({pattern}){tail}")
        if not own.keys().isdisjoint({"minLength", "maxLength"}):
            limits.append(f"(.|\\n){{{own.get('minLength', 0)},{own.get('maxLength', '')}}}")
        if not limits:
            return self._until(after)
        # The string ends at the first ``after``, so it must satisfy the limits without one inside.
        all_of = " & ".join(f"/{llguidance.regex_to_lark(limit, 'dw')}/" for limit in limits)
        outside = llguidance.regex_to_lark(rf"(.|\n)*{re.escape(after)}(.|\n)*")
        text = self._rule(f"({all_of} & ~/{outside}/) {_quoted(after)}", is_terminal=True)
        return self._rule(text, options="[lazy]")

    def _keywords(self, grammar: KeywordArguments) -> str:
        """Return a rule for ``name=value`` pairs, made from the last property to the first.

        ``later`` continues after another pair, ``first`` where there is none yet.
        """
        schema = json.loads(grammar.schema)
        properties = _properties(schema, is_strict=grammar.is_strict)
        later = ""
        first = ""
        for name, own, is_required in reversed(properties):
            item = f"{_quoted(name + '=')} {self._value(own, schema, grammar)}"
            skip_later, skip_first = later, first
            here = f"{item} {later}"
            first = self._rule(here if is_required else f"{here} | {skip_first or _quoted('')}")
            later = self._rule(
                f'", " {here}' if is_required else f'", " {here} | {skip_later or _quoted("")}'
            )
        return first

    def _value(
        self, own: Any, schema: dict[str, Any], grammar: XmlArguments | KeywordArguments
    ) -> str:
        """Return an expression for a JSON value that may refer to the schema's definitions."""
        if isinstance(own, dict):
            shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
            own = {**shared, **own}
        return self._json(own, is_strict=grammar.is_strict)


def _properties(schema: dict[str, Any], *, is_strict: bool) -> list[tuple[str, Any, bool]]:
    """Return name, schema and "is required" of each property, in order."""
    prepare_schema(schema, is_strict=is_strict, is_closed=True)  # for its errors
    required = schema.get("required", [])
    properties = schema.get("properties", {})
    return [(name, own, name in required) for name, own in properties.items()]


def _moved(schema: Any, place: str) -> Any:
    """Return a schema moved to ``place``, with its references into itself adjusted."""
    if isinstance(schema, list):
        return [_moved(item, place) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: "#" + place + value[1:]
        if key == "$ref" and isinstance(value, str)
        else _moved(value, place)
        for key, value in schema.items()
    }


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
