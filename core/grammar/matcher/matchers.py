"""MatcherFactory: compiles grammars to llguidance matchers, in this process."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import llguidance
import msgspec

from core.contract.errors import InvalidRequest, is_survivable
from core.contract.grammar import Grammar
from core.grammar.matcher.digits import DigitLimit
from core.grammar.matcher.lark import MAX_LARK_BYTES, REFERENCE, Written, to_lark
from core.text.vocabulary import Vocabulary

NUM_TRIED = 4
"""First tokens that a new grammar must allow."""


class TokenTable(msgspec.Struct, frozen=True, array_like=True):
    """A vocabulary as llguidance reads it.

    ``tokens`` are the bytes of every id of the model; ``special_ids`` the ids of special tokens by
    their text; ``end_ids`` the tokens that end an answer, at least one.
    """

    tokens: list[bytes]
    special_ids: dict[str, int]
    end_ids: tuple[int, ...]

    @classmethod
    def of(cls, vocabulary: Vocabulary, end_ids: tuple[int, ...], vocab_size: int) -> TokenTable:
        """Read a vocabulary. Raises InvalidRequest if it cannot be used with grammars."""
        if not vocabulary.is_exact or not end_ids:
            raise InvalidRequest(
                "This model's tokenizer does not allow for limits on the output's form.",
                code="unsupported_parameter",
            )
        token_bytes = vocabulary.token_bytes
        return cls(
            tokens=[token_bytes(token_id) for token_id in range(vocab_size)],
            special_ids={token_bytes(i).decode(): i for i in vocabulary.special_ids},
            end_ids=end_ids,
        )


class MatcherFactory:
    """Turns grammars into text for llguidance, and text into matchers.

    Immutable; any thread may use it. Deep grammars need ``on_deep_stack``. llguidance releases the
    interpreter lock while it works, and bounds its own work by ``LLParserLimits``, but not all of
    it: see ``core.grammar.trial``.
    """

    def __init__(self, table: TokenTable) -> None:
        self._table = table
        self._end_mask = sum(1 << token_id for token_id in table.end_ids)
        self._tokenizer = llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(_TokenizerAdapter(table)), eos_token=list(table.end_ids)
        )

    @functools.cached_property
    def digits(self) -> DigitLimit:
        """Ends numbers in this vocabulary."""
        return DigitLimit(self._table.tokens, self._table.end_ids)

    def compile(self, grammar: Grammar) -> tuple[Written, llguidance.LLMatcher]:
        """Return the text of a grammar and a matcher at its start. Raises InvalidRequest.

        What fails is written again without the keywords that are at fault, and then, if it is too
        complex as a whole, with arguments of tools of any kind.
        """
        text, problem = "", ""
        for is_repaired, is_widened in ((False, False), (True, False), (True, True)):
            written = to_lark(
                grammar,
                special_ids=self._table.special_ids,
                end_ids=frozenset(self._table.end_ids),
                problem=self._problem,
                is_repaired=is_repaired,
                is_widened=is_widened,
            )
            if written.text == text:
                continue
            text = written.text
            matcher, problem = self._try(text)
            if matcher is not None:
                return written, matcher
        raise InvalidRequest(problem, code="invalid_grammar")

    def of_text(self, text: str) -> llguidance.LLMatcher:
        """Return a matcher of text that ``compile`` returned. Raises InvalidRequest."""
        matcher, problem = self._try(text)
        if matcher is None:
            raise InvalidRequest(problem, code="invalid_grammar")
        return matcher

    def failed_matcher(self) -> llguidance.LLMatcher:
        """Return a matcher that has failed, so that it does nothing."""
        return llguidance.LLMatcher(self._tokenizer, "", log_level=0)

    def _problem(self, text: str) -> str | None:
        """Why the text cannot be compiled, or None. With references, also if nothing can begin."""
        if REFERENCE in text:
            matcher, problem = self._try(text)
            return problem if matcher is None else None
        try:
            problem = llguidance.LLMatcher.validate_grammar(text, limits=parser_limits())
        except BaseException as error:
            if not is_survivable(error):
                raise
            return "panic"
        return problem or None

    def _try(self, text: str) -> tuple[llguidance.LLMatcher | None, str]:
        if len(text) > MAX_LARK_BYTES:
            return None, f"The grammar is too large: {len(text)} bytes, more than {MAX_LARK_BYTES}."
        matcher = llguidance.LLMatcher(self._tokenizer, text, log_level=0, limits=parser_limits())
        if matcher.is_error():
            return None, error_message(matcher.get_error())
        if not self._can_begin(matcher.deep_copy()):
            return None, "The grammar cannot be satisfied, or is too complex."
        return matcher, ""

    def _can_begin(self, matcher: llguidance.LLMatcher) -> bool:
        """Whether a few first tokens match; many grammars that are too complex fail there."""
        for _ in range(NUM_TRIED):
            mask = int.from_bytes(matcher.compute_bitmask(), "little")
            if matcher.is_error():
                return False
            if mask & self._end_mask and matcher.is_accepting():
                return True
            others = mask & ~self._end_mask
            if not others:
                return False
            matcher.consume_token((others & -others).bit_length() - 1)
        return not matcher.is_error()


class _TokenizerAdapter:
    """The vocabulary in the form that llguidance reads."""

    bos_token_id = None

    def __init__(self, table: TokenTable) -> None:
        self.tokens: Sequence[bytes] = table.tokens
        ids = sorted(table.special_ids.values())
        self.special_token_ids = [i for i in ids if i < len(table.tokens)]
        self.eos_token_id = table.end_ids[0]

    def __call__(self, _text: bytes) -> list[int]:
        """Tokenize. Unused, because no token is forced."""
        return []


def error_message(error: str) -> str:
    """Return llguidance's message without line numbers, which refer to generated text.

    Of a panic nothing is repeated: it may hold a backtrace.
    """
    if "panic" in error or "<backtrace>" in error:
        return "The grammar is too complex."
    first = error.split(": ", 1)[-1] if error.startswith("at ") else error
    lines = [line.strip() for line in first.splitlines() if "|" not in line and line.strip(" ^")]
    return " ".join(lines)[:300] or "The grammar is invalid."


def parser_limits() -> llguidance.LLParserLimits:
    """Return the limits of one grammar: the cost of the start, of one mask, and of memory."""
    return llguidance.LLParserLimits(
        initial_lexer_fuel=1_000_000,
        step_lexer_fuel=100_000,
        step_max_items=50_000,
        max_items_in_row=50_000,  # alternatives: objects may have thousands of properties
        max_lexer_states=20_000,
        max_grammar_size=200_000,
        verbose_errors=False,
    )


T = TypeVar("T")

STACK_BYTES = 256 * 1024 * 1024
"""Address space; only used pages cost memory. llguidance recurses, with frames of about 8 KiB, for
each reference or rule that leads to another one, and a stack overflow kills the process."""

_STARTING = threading.Lock()


def on_deep_stack(function: Callable[[], T]) -> T:
    """Call ``function`` on its own thread with a large stack; return or raise its result."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            errors.append(error)

    thread = threading.Thread(target=run, name="grammar-compile", daemon=True)
    with _STARTING:
        default = threading.stack_size(STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(default)
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
