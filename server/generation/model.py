"""ServedModel: the loaded model as translation sees it, with its family's conventions."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from core.contract.errors import InvalidRequest
from core.contract.grammar import CallMarkup
from core.contract.info import EngineInfo
from core.grammar.compiler import GrammarCompiler
from core.text.tokenizer import Tokenizer
from server.http.errors import wrong_task
from server.parsers import reasoning, tool
from server.parsers.reasoning import ThinkingTags
from server.parsers.tool.parser import CallParser
from server.settings.serve import AUTO, NONE
from server.settings.settings import Settings

if TYPE_CHECKING:  # it imports torch
    from core.assembly.build import LoadedEngine
    from core.pooling.build import LoadedPooler

Loaded: TypeAlias = "LoadedEngine | LoadedPooler"
"""What the core thread loads: a model that generates, or one that embeds or scores."""

FALLBACK_TOOLS = "hermes"
"""The format of a required call if the model's family has none."""

MARK = "Be brief and polite."
"""A system turn, to see whether chat templates show it."""


@dataclass(frozen=True, slots=True)
class Families:
    """The model's formats of tool calls and of thinking.

    Detected from the chat template, unless the operator chose them. None: the family has none.
    ``tool`` is generic if the template shows neither tools nor a known form of calls.
    ``thinks_by_default``: the model may begin to think although the prompt does not end with the
    opening tag. False if the template turns thinking on only when asked. ``takes_system``: the
    template shows system turns, with ``takes_late_system`` also after the first message.
    """

    tool: str | None
    reasoning: str | None
    thinks_by_default: bool
    takes_system: bool
    takes_late_system: bool
    chat_template: str | None

    @classmethod
    def of(cls, settings: Settings, tokenizer: Tokenizer) -> Families:
        template = tokenizer.tool_template
        found = tool.detect(template)
        if found is None and template is not None and "tools" not in template:
            found = tool.GENERIC
        system, user, assistant = ("system", MARK), ("user", "Hello"), ("assistant", "Hello")
        early = _rendered(tokenizer, system, user)
        late = _rendered(tokenizer, ("system", "Hello"), user, system, assistant, user)
        thoughts = [_rendered(tokenizer, user), _rendered(tokenizer, user, enable_thinking=True)]
        return cls(
            tool=_chosen(settings.tool_call_parser, found),
            reasoning=_chosen(settings.reasoning_parser, reasoning.detect(tokenizer.chat_template)),
            thinks_by_default=None in thoughts or thoughts[0] == thoughts[1],
            takes_system=MARK in (early or ""),
            takes_late_system=MARK in (late or ""),
            chat_template=template,
        )

    @property
    def template_shows_tools(self) -> bool:
        return "tools" in (self.chat_template or "")

    @property
    def writes_tools(self) -> bool:
        """Whether tools, calls and results are text of ordinary turns, for lack of a template."""
        if self.tool is None or self.chat_template is None:
            return False
        if self.tool == tool.GENERIC:
            return True
        return not self.template_shows_tools and self.markup.arguments == "json"

    @property
    def markup(self) -> CallMarkup:
        """The form in which the model writes calls. ``call_parser`` parses it."""
        return self.call_parser.markup_for(self.chat_template or "")

    @property
    def call_parser(self) -> type[CallParser]:
        return tool.TOOL_PARSERS[self.tool or FALLBACK_TOOLS]

    @property
    def thinking_tags(self) -> ThinkingTags | None:
        return None if self.reasoning is None else reasoning.THINKING_TAGS[self.reasoning]


def _chosen(name: str, detected: str | None) -> str | None:
    return {AUTO: detected, NONE: None}.get(name, name)


def _rendered(tokenizer: Tokenizer, *turns: tuple[str, str], **variables: Any) -> str | None:
    """A conversation of roles and contents. None: no template, or one that rejects it."""
    messages = [{"role": role, "content": content} for role, content in turns]
    try:
        return tokenizer.render_chat(messages, template_kwargs=variables)
    except InvalidRequest:
        return None


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The model as translation sees it. Immutable; any thread may use it.

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
        info = loaded.info
        facts = f"{settings.model} {info.dtype} {info.device} {info.vocab_size}"
        return cls(
            settings=settings,
            info=info,
            tokenizer=loaded.tokenizer,
            grammar_compiler=loaded.grammar_compiler,
            families=Families.of(settings, loaded.tokenizer),
            fingerprint="fp_" + hashlib.sha256(facts.encode()).hexdigest()[:10],
        )

    @property
    def name(self) -> str:
        return self.settings.model_name

    @property
    def takes_messages(self) -> bool:
        """Whether there is a chat template, without which requests must bring their own."""
        return self.families.chat_template is not None

    def check_generates(self) -> None:
        """Raise InvalidRequest for a model that makes vectors or scores instead of text."""
        if self.info.pooling is not None:
            route = "/v1/embeddings" if self.info.pooling.task == "embed" else "/v1/rerank"
            raise wrong_task(f"This model generates no text; it answers POST {route}.")
