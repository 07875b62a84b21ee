"""NewGrammars: the grammars of a request, which may have to be compiled."""

from __future__ import annotations

from collections.abc import Callable

from core.contract.grammar import Grammar
from core.grammar.compiler import GrammarCompiler
from server.admission.checkpoint import checkpoint, is_cancelled


class NewGrammars:
    """Collects the grammars of one request, so that they are compiled in a lane of their own.

    Translation notes each grammar with the field that it comes from. One thread at a time.
    """

    def __init__(self, compiler: GrammarCompiler) -> None:
        self._compiler = compiler
        self._noted: list[tuple[Grammar, str | None]] = []

    def note(self, grammar: Grammar, *, param: str | None) -> None:
        """Note a grammar. Raises InvalidRequest if it is too large."""
        self._compiler.check_size(grammar, param=param)
        self._noted.append((grammar, param))

    def rename_params(self, name_of: Callable[[str], str]) -> None:
        """Rename the fields, for a client of another API than chat completions."""
        self._noted = [
            (grammar, None if param is None else name_of(param)) for grammar, param in self._noted
        ]

    def are_compiled(self, salt: str) -> bool:
        """Whether all are compiled for requests with this salt. Does not block."""
        return all(self._compiler.is_kept(grammar, salt=salt) for grammar, _ in self._noted)

    def compile(self, salt: str) -> None:
        """Compile them in order. Raises InvalidRequest naming the field. Blocks."""
        for grammar, param in self._noted:
            checkpoint()
            self._compiler.check(grammar, salt=salt, param=param, is_cancelled=is_cancelled)
