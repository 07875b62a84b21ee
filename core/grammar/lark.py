"""Grammars written out in llguidance's own language.

What is written is one main grammar of context-free rules, and one more for each grammar that a
client wrote, so that names cannot clash. Source of the language: llguidance, docs/syntax.md.
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
from core.grammar.schema import prepared

MAX_RULES = 5000
"""Rules that a client may write: each may lead to the next one."""

_SPACE = r"[ ]|\n[ \t]{0,32}"
"""Whitespace where JSON allows any: one blank, or a line end with its indentation."""

_HEAD = """%llguidance {"no_forcing": true}
TEXT: /(.|\\n)*/
GAP: /\\n{0,2}/
"""
# Without forcing, a model may write a fixed text in whatever tokens it likes: forcing would call
# back into the tokenizer for each mask.


def written(
    grammar: Grammar,
    *,
    special_ids: Mapping[str, int],
    end_ids: frozenset[int],
    is_lenient: bool = False,
) -> str:
    """The grammar as llguidance takes it.

    ``special_ids`` are the model's special tokens by their text; ``end_ids`` end an answer and so
    are no part of free text. ``is_lenient`` takes schemas that need not be enforced strictly as
    any object. Raises InvalidRequest for schemas, regexes and GBNF that cannot be written.
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

    def write(self, grammar: Grammar) -> str:  # noqa: C901, PLR0911, PLR0912 - one case for each
        """An expression for the grammar, in parentheses where it needs them."""
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
        """Name an expression."""
        self._num_names += 1
        name = f"{'T' if is_terminal else 'r'}{self._num_names}"
        self.rules.append(f"{name}{options}: {expression}")
        return name

    def _other(self, source: str) -> str:
        try:
            source = llguidance.gbnf_to_lark.any_to_lark(source)
        except Exception as error:  # it has no error of its own for most of what goes wrong
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
        schema = self._prepared(schema, is_strict=is_strict, is_closed=is_closed)
        if schema is False:
            raise InvalidRequest("Invalid schema: nothing satisfies it.", code="invalid_schema")
        space: dict[str, Any] = (
            {"whitespace_flexible": False} if is_compact else {"whitespace_pattern": _SPACE}
        )
        schema = {} if schema is True else schema
        text = json.dumps({"x-guidance": space, **schema}, separators=(",", ":"))
        return self._rule(f"%json {text}")

    def _prepared(self, schema: Any, *, is_strict: bool, is_closed: bool = True) -> Any:
        if self._is_lenient and not is_strict:
            return {"type": "object"}
        return prepared(schema, is_strict=is_strict, is_closed=is_closed)

    def _json_call(self, grammar: JsonCall) -> str:
        arguments = self._prepared(json.loads(grammar.schema), is_strict=grammar.is_strict)
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
        """A chunk of free text that ends in a special token; those in ``stops`` are not free."""
        ids = self._free_ids - {self._special_ids.get(stop) for stop in stops}
        return self._rule(f"{text} <[{','.join(map(str, sorted(ids)))}]>") if ids else ""

    def _until(self, marker: str) -> str:
        """Free text up to and including a marker."""
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
        """A string without quotes and what comes after it. A ``format`` is not enforced."""
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
        # It ends at the first ``after``: what would only suffice with one inside is excluded.
        all_of = " & ".join(f"/{llguidance.regex_to_lark(limit, 'dw')}/" for limit in limits)
        outside = llguidance.regex_to_lark(rf"(.|\n)*{re.escape(after)}(.|\n)*")
        text = self._rule(f"({all_of} & ~/{outside}/) {_quoted(after)}", is_terminal=True)
        return self._rule(text, options="[lazy]")

    def _keywords(self, grammar: KeywordArguments) -> str:
        """Rules for "from here on", one where something stands before, one where nothing does."""
        schema = json.loads(grammar.schema)
        properties = _properties(schema, is_strict=grammar.is_strict)
        behind = ""
        alone = ""
        for name, own, is_required in reversed(properties):
            item = f"{_quoted(name + '=')} {self._value(own, schema, grammar)}"
            skip_behind, skip_alone = behind, alone
            here = f"{item} {behind}"
            alone = self._rule(here if is_required else f"{here} | {skip_alone or _quoted('')}")
            behind = self._rule(
                f'", " {here}' if is_required else f'", " {here} | {skip_behind or _quoted("")}'
            )
        return alone

    def _value(
        self, own: Any, schema: dict[str, Any], grammar: XmlArguments | KeywordArguments
    ) -> str:
        """One property's JSON value, which may refer to the definitions beside it."""
        if isinstance(own, dict):
            shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
            own = {**shared, **own}
        return self._json(own, is_strict=grammar.is_strict)


def _properties(schema: dict[str, Any], *, is_strict: bool) -> list[tuple[str, Any, bool]]:
    """Name, schema and "is required" of each property, in order."""
    prepared(schema, is_strict=is_strict, is_closed=True)  # raises what it raises
    required = schema.get("required", [])
    properties = schema.get("properties", {})
    return [(name, own, name in required) for name, own in properties.items()]


def _moved(schema: Any, place: str) -> Any:
    """A schema that now stands at ``place``: what it refers to in itself has moved with it."""
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
