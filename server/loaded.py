"""Loaded: what the server needs of a loaded model."""

from __future__ import annotations

from typing import Protocol

from core.contract.info import EngineInfo
from core.grammar.compiler import GrammarCompiler
from core.text.tokenizer import Tokenizer
from core.thread import SteppingEngine


class Loaded(Protocol):
    """A model that generates, embeds or scores."""

    @property
    def engine(self) -> SteppingEngine:
        """Owned by the thread that loaded it."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def info(self) -> EngineInfo: ...

    @property
    def grammar_compiler(self) -> GrammarCompiler: ...
