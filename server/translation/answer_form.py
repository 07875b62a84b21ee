"""AnswerForm: the parts of a chat answer (thinking, tool calls, text) and their constraints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from core.contract.errors import InvalidRequest
from core.contract.grammar import Grammar, after
from core.contract.params import Thinking
from core.text.tokenizer import Tokenizer
from schemas.chat import ChatCompletionRequest
from server.generation.families import Families
from server.generation.grammars import NewGrammars
from server.parsers.tool.parser import CallParser
from server.translation.tools import ToolSelection


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """What one model may answer to one request.

    The text must match ``text_format``, which the request's field ``format_param`` contains.
    ``tools``, of the field ``tools_param``, has no callable ones if the family's markup of calls is
    unknown. ``thinking`` is None if tags in the output are plain text.
    """

    families: Families
    tools: ToolSelection
    tools_param: str
    text_format: Grammar | None
    format_param: str | None
    thinking: Thinking | None

    @classmethod
    def of(
        cls,
        request: ChatCompletionRequest,
        tools: ToolSelection,
        text_format: tuple[Grammar | None, str | None],
        families: Families,
        tokenizer: Tokenizer,
        prompt_tail: str,
    ) -> AnswerForm:
        """Combine the results of ``select_tools`` and ``output_format``. Raises InvalidRequest.

        ``prompt_tail`` is the end of the prompt as text, special tokens included.
        """
        if not tools.must_call and families.tool is None:
            tools = ToolSelection()  # the markup of calls is unknown: all text is content
        is_constrained = text_format[0] is not None or tools.must_call
        return cls(
            families=families,
            tools=tools,
            tools_param="functions" if request.functions else "tools",
            text_format=text_format[0],
            format_param=text_format[1],
            thinking=_thinking(
                request, families, tokenizer, prompt_tail, is_constrained=is_constrained
            ),
        )

    def grammar(self, new_grammars: NewGrammars) -> Grammar | None:
        """The grammar of the whole output, if any. Notes what must be compiled for it."""
        grammar, param = self.text_format, self.format_param
        if self.tools.callable:
            if grammar is not None:  # so that the error names the field at fault
                new_grammars.note(grammar, param=param)
            grammar = self.tools.grammar(self.families.markup, grammar)
            param = self.tools_param
        if grammar is None:
            return None
        thinking = self.thinking
        if thinking is not None and thinking.is_expected:
            begin = None if thinking.is_open else thinking.begin
            grammar = after(grammar, thinking.end, begin=begin)
        new_grammars.note(grammar, param=param, format_param=self.format_param)
        return grammar

    def has_special_markup(self, tokenizer: Tokenizer) -> bool:
        """Whether tags or call markup are special tokens, so that the text must include these."""
        return any(
            len(ids) == 1 and ids[0] in tokenizer.special_ids
            for marker in self._markers()
            if (ids := tokenizer.encode(marker, add_special_tokens=False))
        )

    @property
    def new_parser(self) -> Callable[[], CallParser] | None:
        """Makes the tool-call parser of one choice. None: all text is content."""
        if not self.tools.callable:
            return None
        return lambda: self.families.call_parser(
            self.tools.callable, parallel=self.tools.is_parallel
        )

    def _markers(self) -> Iterator[str]:
        if self.tools.callable:
            yield from self.families.call_parser.markers
        if self.thinking is not None and self.thinking.is_expected:
            yield self.thinking.begin
            yield self.thinking.end


def _thinking(
    request: ChatCompletionRequest,
    families: Families,
    tokenizer: Tokenizer,
    prompt_tail: str,
    *,
    is_constrained: bool,
) -> Thinking | None:
    """How the output marks thinking.

    Thinking is not expected if it has to be turned on and was not, or if the prompt has ended it.
    A constrained output then has none: the constraint applies from the first character on.
    """
    budget = request.thinking_token_budget
    if budget == -1:
        budget = None
    tags = families.thinking_tags
    if tags is None:
        if budget is not None:
            raise InvalidRequest(
                "This model does not think, so it takes no thinking_token_budget.",
                param="thinking_token_budget",
                code="unsupported_parameter",
            )
        return None
    tail = prompt_tail.rstrip()
    is_open = tail.endswith(tags.begin)
    is_expected = is_open or (families.thinks_by_default and not tail.endswith(tags.end))
    is_separate = request.separate_reasoning is not False
    if not is_expected and (is_constrained or not is_separate):
        return None
    return Thinking(
        begin=tags.begin,
        end=tags.end,
        end_token_ids=tuple(tokenizer.encode(tags.end, add_special_tokens=False)),
        is_open=is_open,
        budget=budget,
        is_expected=is_expected,
        is_separate=is_separate,
    )
