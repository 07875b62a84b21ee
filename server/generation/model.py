"""ServedModel: the loaded model as translation sees it.

Loaded: what the server needs of a loaded model.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

from core.contract.errors import InvalidRequest
from core.contract.info import EngineInfo
from core.grammar.compiler import GrammarCompiler
from core.text.tokenizer import Tokenizer
from core.thread import SteppingEngine
from server.generation.families import Families
from server.settings.settings import Settings


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


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What a request is translated against. Immutable; any thread may use it.

    ``fingerprint`` changes when equal requests with equal seeds may get different answers.
    """

    settings: Settings
    info: EngineInfo
    tokenizer: Tokenizer
    grammar_compiler: GrammarCompiler
    families: Families
    fingerprint: str

    @classmethod
    def of(cls, settings: Settings, loaded: Loaded) -> ServedModel:
        return cls(
            settings=settings,
            info=loaded.info,
            tokenizer=loaded.tokenizer,
            grammar_compiler=loaded.grammar_compiler,
            families=Families.of(settings, loaded.tokenizer),
            fingerprint=_fingerprint(settings, loaded.info),
        )

    @property
    def name(self) -> str:
        """The model id on the wire."""
        return self.settings.model_name

    @property
    def takes_messages(self) -> bool:
        """Whether there is a chat template, without which requests must bring their own."""
        return self.families.chat_template is not None

    def check_generates(self) -> None:
        """Raise InvalidRequest for a model that makes vectors or scores instead of text."""
        if self.info.pooling is not None:
            route = "/v1/embeddings" if self.info.pooling.task == "embed" else "/v1/rerank"
            raise InvalidRequest(
                f"This model generates no text; it answers POST {route}.",
                param="model",
                code="unsupported_task",
            )


def _fingerprint(settings: Settings, info: EngineInfo) -> str:
    facts = f"{settings.model} {info.dtype} {info.device} {info.vocab_size}"
    return "fp_" + hashlib.sha256(facts.encode()).hexdigest()[:10]
