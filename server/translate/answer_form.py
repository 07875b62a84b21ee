"""What a chat answer may be: thinking, calls, text of a format; and what tells them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from core.contract.errors import InvalidRequest
from core.contract.grammar import Grammar, after
from core.contract.params import Thinking
from core.grammar.compiler import GrammarCompiler
from core.text.tokenizer import Tokenizer
from schemas.chat import ChatCompletionRequest
from server.families import Families
from server.parsers.chain import ChoiceParser
from server.translate.tools import ToolSelection


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """One model's answer to one request, before it is written.

    ``text_format`` is what the text must be, as the field ``format_param`` says. ``tools`` has
    no callable ones where calls would not be told from text. ``thinking`` is None where the
    answer may not begin with any. ``prompt_tail`` is the prompt's end as text.
    """

    families: Families
    tools: ToolSelection
    text_format: Grammar | None
    format_param: str | None
    thinking: Thinking | None
    reports_thinking: bool
    prompt_tail: str

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
        """Take what ``select_tools`` and ``output_format`` gave. Raises InvalidRequest."""
        if not tools.must_call and families.tool is None:
            tools = ToolSelection()  # the markup of calls is unknown: all text is content
        return cls(
            families=families,
            tools=tools,
            text_format=text_format[0],
            format_param=text_format[1],
            thinking=_thinking(request, families, tokenizer, prompt_tail),
            reports_thinking=request.separate_reasoning is not False,
            prompt_tail=prompt_tail,
        )

    def grammar(self, compiler: GrammarCompiler) -> Grammar | None:
        """What the whole answer must match, if anything. Raises InvalidRequest if none could."""
        grammar, param = self.text_format, self.format_param
        if self.tools.callable:
            if grammar is not None:  # tells which of the two is at fault
                compiler.check(grammar, param=param)
            grammar, param = self.tools.grammar(self.families.markup, grammar), "tools"
        if grammar is None:
            return None
        if self.thinking is not None:
            begin = None if self.thinking.is_open else self.thinking.begin
            grammar = after(grammar, self.thinking.end, begin=begin)
        compiler.check(grammar, param=param)
        return grammar

    def has_special_markup(self, tokenizer: Tokenizer) -> bool:
        """Whether a parser needs to see special tokens, which the text must therefore show."""
        return any(
            len(ids) == 1 and ids[0] in tokenizer.special_ids
            for marker in self._markers()
            if (ids := tokenizer.encode(marker, add_special_tokens=False))
        )

    @property
    def new_parser(self) -> Callable[[], ChoiceParser] | None:
        """What makes the parser of one choice; None where all is text."""
        is_limited = self.text_format is not None or self.tools.must_call
        may_think = self.thinking is not None or not is_limited  # else tags are what was asked for
        reasoning = self.families.reasoning_parser if may_think and self.reports_thinking else None
        calls = self.families.call_parser if self.tools.callable else None
        if reasoning is None and calls is None:
            return None

        def new_parser() -> ChoiceParser:
            return ChoiceParser(
                None if reasoning is None else reasoning(self.prompt_tail),
                None
                if calls is None
                else calls(self.tools.callable, parallel=self.tools.is_parallel),
            )

        return new_parser

    def _markers(self) -> Iterator[str]:
        if self.tools.callable:
            yield from self.families.call_parser.markers
        if self.thinking is not None:
            yield self.thinking.begin
            yield self.thinking.end


def _thinking(
    request: ChatCompletionRequest, families: Families, tokenizer: Tokenizer, prompt_tail: str
) -> Thinking | None:
    """How this model thinks in this answer, if it may.

    It may not where it has to be asked and was not, or where the prompt has ended the thinking
    already: there a constraint must hold from the first character on.
    """
    budget = request.thinking_token_budget
    if budget == -1:
        budget = None
    parser = families.reasoning_parser
    if parser is None:
        if budget is not None:
            raise InvalidRequest(
                "This model does not think, so it takes no thinking_token_budget.",
                param="thinking_token_budget",
                code="unsupported_parameter",
            )
        return None
    tail = prompt_tail.rstrip()
    is_open = tail.endswith(parser.opening)
    if not is_open and (not families.thinks_unasked or tail.endswith(parser.closing)):
        return None
    return Thinking(
        begin=parser.opening,
        end=parser.closing,
        end_token_ids=tuple(tokenizer.encode(parser.closing, add_special_tokens=False)),
        is_open=is_open,
        budget=budget,
    )
