"""NewGrammars: grammars of a request that are not compiled yet."""

from __future__ import annotations

from core.contract.grammar import Grammar
from core.grammar.compiler import GrammarCompiler
from server.admission.checkpoint import checkpoint, is_cancelled


class NewGrammars:
    """Collects the grammars of one request, so that they are compiled in a lane of their own.

    Translation notes each grammar with the field that it comes from. One thread at a time.
    """

    def __init__(self, compiler: GrammarCompiler) -> None:
        self._compiler = compiler
        self._new: list[tuple[Grammar, str | None]] = []

    def __bool__(self) -> bool:
        """Whether there is anything to compile."""
        return bool(self._new)

    def note(self, grammar: Grammar, *, param: str | None) -> None:
        """Note a grammar unless it is compiled. Raises InvalidRequest if it is too large."""
        if not self._compiler.is_kept(grammar, param=param):
            self._new.append((grammar, param))

    def compile(self) -> None:
        """Compile them in order. Raises InvalidRequest naming the field. Blocks."""
        for grammar, param in self._new:
            checkpoint()
            self._compiler.check(grammar, param=param, is_cancelled=is_cancelled)
