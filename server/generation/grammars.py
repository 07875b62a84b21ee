"""NewGrammars: the grammars of a request, which may have to be compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from core.contract.errors import InvalidRequest
from core.contract.grammar import DroppedKeyword, Grammar
from core.grammar.compiler import GrammarCompiler
from server.admission.pools import checkpoint, is_cancelled
from server.http.ignored_fields import MAX_NAME_LENGTH

MAX_WARNINGS = 64
"""Names in an answer; the last entry is the number of others."""


class _Noted(NamedTuple):
    grammar: Grammar
    param: str | None
    format_param: str


class NewGrammars:
    """Collects the grammars of one request, to be compiled in a worker pool of their own.

    Translation notes each grammar with the field that it comes from. One thread at a time.
    ``warnings`` are, once all are compiled, the keywords of their schemas that are not enforced:
    ``tools.NAME.KEYWORD``, or the field of the format and the keyword.
    """

    def __init__(self, compiler: GrammarCompiler) -> None:
        self._compiler = compiler
        self._noted: list[_Noted] = []
        self.warnings: list[str] = []
        self._param: str | None = None  # the field of the first warning

    def note(self, grammar: Grammar, *, param: str | None, format_param: str | None = None) -> None:
        """Note a grammar of a field, and which field the format of its text is from.

        Raises InvalidRequest if it is too large.
        """
        self._compiler.check_size(grammar, param=param)
        self._noted.append(_Noted(grammar, param, format_param or param or ""))

    def rename_params(self, name_of: Callable[[str], str]) -> None:
        """Rename the fields, for a client of another API than chat completions."""
        self._noted = [
            _Noted(grammar, None if param is None else name_of(param), name_of(format_param))
            for grammar, param, format_param in self._noted
        ]

    def are_compiled(self, salt: str) -> bool:
        """Whether all are compiled for requests with this salt. Does not block."""
        dropped = [self._compiler.dropped(noted.grammar, salt=salt) for noted in self._noted]
        known = [names for names in dropped if names is not None]
        if len(known) < len(dropped):
            return False
        self._warn(known)
        return True

    def compile(self, salt: str) -> None:
        """Compile them in order. Raises InvalidRequest naming the field. Blocks."""
        dropped = []
        for grammar, param, _ in self._noted:
            checkpoint()
            dropped.append(
                self._compiler.check(grammar, salt=salt, param=param, is_cancelled=is_cancelled)
            )
        self._warn(dropped)

    def check_enforced(self) -> None:
        """Raise InvalidRequest naming keywords that are not enforced, if there are any."""
        if self.warnings:
            names = ", ".join(f"'{name}'" for name in self.warnings[:8])
            raise InvalidRequest(
                f"Invalid schema: {names} cannot be enforced by this server.",
                param=self._param,
                code="invalid_schema",
            )

    def _warn(self, dropped: Iterable[Iterable[DroppedKeyword]]) -> None:
        names: dict[str, str | None] = {}
        for noted, keywords in zip(self._noted, dropped, strict=True):
            for tool, keyword in keywords:
                field = f"tools.{tool[:96]}" if tool else noted.format_param
                param = noted.param if tool else noted.format_param
                names.setdefault(f"{field}.{keyword}"[:MAX_NAME_LENGTH], param)
        self._param = next(iter(names.values()), None)
        shown = list(names)[:MAX_WARNINGS]
        more = len(names) - len(shown)
        self.warnings[:] = [*shown, f"+{more}"] if more else shown
