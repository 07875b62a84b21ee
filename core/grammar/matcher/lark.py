"""Writes grammars in llguidance's dialect of Lark.

The output is one main grammar of context-free rules, and one more for each Lark or GBNF grammar
of a client, so that names cannot clash. Source of the syntax: llguidance, docs/syntax.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, assert_never

import llguidance
import llguidance.gbnf_to_lark

from core.contract.errors import InvalidRequest
from core.contract.grammar import (
    After,
    Choice,
    Concat,
    DroppedKeyword,
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
from core.grammar.matcher.fitting import Fitting
from core.grammar.matcher.gbnf import with_characters
from core.grammar.matcher.keywords import moved
from core.grammar.matcher.patterns import RAW_FORMATS, with_patterns

MAX_LARK_BYTES = 320 * 1024
"""Largest text of ``to_lark``, in bytes (it is ASCII). Annotations of schemas are not in it."""

MAX_RULES = 5000
"""Rules in a grammar of a client: each may lead to another one."""

REFERENCE = '"$ref"'
"""In the text of a grammar whose schemas have references."""

_SPACE = r"[ ]|\n[ \t]{0,32}"
"""Whitespace where JSON allows any: one space, or a line break and its indentation."""

_HEAD = """%llguidance {"no_forcing": true}
TEXT: /(.|\\n)*/
GAP: /\\n{0,2}/
"""
# Forcing would write fixed text in the tokenizer's own tokens and call it for each mask.


class Written(NamedTuple):
    """The text of a grammar, and the keywords of its schemas that were dropped."""

    text: str
    dropped: tuple[DroppedKeyword, ...]


def to_lark(
    grammar: Grammar,
    *,
    special_ids: Mapping[str, int],
    end_ids: frozenset[int],
    problem: Callable[[str], str | None],
    is_repaired: bool = False,
    is_widened: bool = False,
) -> Written:
    """Return the grammar as JSON text for llguidance.

    ``special_ids`` maps the text of special tokens to their ids; ``end_ids`` end an answer and are
    never part of free text. ``problem`` compiles a text and says why that fails; with
    ``is_repaired`` each schema loses what keeps it from being compiled. With
    ``is_widened`` the arguments of tools that are not strict have the right names only.

    Raises InvalidRequest for schemas, regexes and grammars that cannot be written, and for a strict
    schema that would lose a keyword.
    """
    fitting = Fitting(problem, is_repaired=is_repaired, is_widened=is_widened)
    writer = _Writer(special_ids, end_ids, fitting)
    text = writer.text(writer.write(grammar))
    return Written(text, tuple(fitting.dropped))


class _Writer:
    def __init__(
        self, special_ids: Mapping[str, int], end_ids: frozenset[int], fitting: Fitting
    ) -> None:
        self.rules: list[str] = []
        self.others: list[dict[str, str]] = []
        self._special_ids = special_ids
        self._end_ids = end_ids
        self._fitting = fitting
        self._split = re.compile(
            "(" + "|".join(map(re.escape, sorted(special_ids, key=len, reverse=True))) + ")"
        )
        self._free_ids = frozenset(special_ids.values()) - end_ids
        self._num_names = 0
        self._num_chars = 0

    def text(self, start: str) -> str:
        """The whole grammar, which begins with this expression."""
        rules = "\n".join([f"{_HEAD}start: {start}", *self.rules])
        grammars = [{"name": "main", "lark_grammar": rules}, *self.others]
        return json.dumps({"grammars": grammars})

    def write(self, grammar: Grammar) -> str:  # noqa: C901, PLR0911, PLR0912 - one case per type
        """Return an expression for the grammar, in parentheses where needed."""
        match grammar:
            case Json():
                return self._json(grammar)
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
            source = llguidance.gbnf_to_lark.any_to_lark(
                with_characters(source) if "::=" in source else source
            )
        except InvalidRequest:
            raise
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

    def _json(self, grammar: Json) -> str:
        fitted = self._fitting.arguments if grammar.tool else self._fitting.value
        return self.json(fitted(grammar, _json_alone), is_compact=grammar.is_compact)

    def json(self, schema: Any, *, is_compact: bool = False) -> str:
        """Return a rule for a JSON value of a prepared schema."""
        text = json.dumps(_for_llguidance(schema, is_compact=is_compact), separators=(",", ":"))
        return self._rule(f"%json {text}")

    def _json_call(self, grammar: JsonCall) -> str:
        arguments = self._fitting.arguments(grammar, _json_alone)
        properties = {key: {"const": value} for key, value in json.loads(grammar.head).items()}
        place = grammar.key.replace("~", "~0").replace("/", "~1")
        properties[grammar.key] = moved(arguments, f"/properties/{place}")
        call = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        return self.json(call)

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
        arguments = []
        for name, own, is_required in self._fitting.properties(grammar):
            before = self._markup(grammar.before.replace("{name}", name))
            if isinstance(own, dict) and own.get("type") == "string":
                value = self._raw_string(own, grammar)
            else:
                value = f"{self._value(own, grammar)} {self._markup(grammar.after)}"
            argument = f"{before} {value}"
            arguments.append(argument if is_required else f"({argument})?")
        return " ".join(arguments)

    def _raw_string(self, own: dict[str, Any], grammar: XmlArguments) -> str:
        def alone(schema: dict[str, Any]) -> str:
            writer = _Writer(self._special_ids, self._end_ids, self._fitting)
            return writer.text(writer.written_string(schema, grammar.after))

        own = self._fitting.raw_string(own, grammar, alone, _json_alone)
        return self.written_string(own, grammar.after)

    def written_string(self, own: dict[str, Any], after: str) -> str:
        """Return an expression for an unquoted string and ``after``."""
        limits = []
        for pattern in filter(None, (own.get("pattern"), RAW_FORMATS.get(own.get("format", "")))):
            head = "" if pattern.startswith("^") else r"(.|\n)*"
            tail = "" if pattern.endswith("$") else r"(.|\n)*"
            limits.append(f"{head}({pattern}){tail}")
        if not own.keys().isdisjoint({"minLength", "maxLength"}):
            limits.append(f"(.|\\n){{{own.get('minLength', 0)},{own.get('maxLength', '')}}}")
        if "const" in own or "enum" in own:
            values = [v for v in own.get("enum", [own.get("const")]) if isinstance(v, str)]
            if not limits:
                options = " | ".join(map(_quoted, values))
                return f"{self._rule(options, is_terminal=True)} {self._markup(after)}"
            limits.append("|".join(map(re.escape, values)))
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
        later = ""
        first = ""
        for name, own, is_required in reversed([*self._fitting.properties(grammar)]):
            item = f"{_quoted(name + '=')} {self._value(own, grammar)}"
            skip_later, skip_first = later, first
            here = f"{item} {later}"
            first = self._rule(here if is_required else f"{here} | {skip_first or _quoted('')}")
            later = self._rule(
                f'", " {here}' if is_required else f'", " {here} | {skip_later or _quoted("")}'
            )
        return first

    def _value(self, own: Any, grammar: XmlArguments | KeywordArguments) -> str:
        """Return an expression for a JSON value."""
        return self.json(self._fitting.repaired(own, grammar, _json_alone))


def _json_alone(schema: Any) -> str:
    """Return a grammar of one JSON value. Without Lark, llguidance reads it ten times as fast."""
    value = json.dumps({"name": "value", "json_schema": _for_llguidance(schema)})
    if REFERENCE not in value:
        return f'{{"grammars":[{value}]}}'
    main = json.dumps({"name": "main", "lark_grammar": f"{_HEAD}start: @value"})
    return f'{{"grammars":[{main},{value}]}}'


def _for_llguidance(schema: Any, *, is_compact: bool = False) -> dict[str, Any]:
    """Return a prepared schema with options. Raises InvalidRequest if nothing satisfies it."""
    if schema is False:
        raise InvalidRequest("Invalid schema: nothing satisfies it.", code="invalid_schema")
    space: dict[str, Any] = (
        {"whitespace_flexible": False} if is_compact else {"whitespace_pattern": _SPACE}
    )
    return {"x-guidance": space, **({} if schema is True else with_patterns(schema))}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
