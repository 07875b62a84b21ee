"""GrammarCompiler: compiles grammars to llguidance matchers."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import llguidance
import msgspec

from core.contract.errors import InvalidRequest
from core.contract.grammar import Grammar
from core.grammar.deep_stack import on_deep_stack
from core.grammar.lark import to_lark
from core.text.vocabulary import Vocabulary

MAX_BYTES = 512 * 1024
"""Largest grammar accepted, in bytes of its message."""

MAX_LARK_BYTES = 320 * 1024
"""Largest grammar accepted after annotations are dropped."""

MAX_COMPILED = 256
MAX_COMPILED_BYTES = 256 * 1024 * 1024

MAX_USES = 256
"""Matchers of one grammar share its lexer, whose states are limited: after this many matchers the
grammar is compiled again."""

_NUM_TRIED = 4
_BASE_BYTES = 64 * 1024
_BYTES_PER_BYTE = 16
"""Estimate of a compiled grammar's memory, which llguidance does not report."""


class GrammarCompiler:
    """Checks grammars and makes a matcher for each sequence. Any thread may call it.

    The most recently used grammars stay compiled, keyed by content. llguidance's limits bound the
    time and memory of each one; it releases the interpreter lock while it works.
    """

    def __init__(self, vocabulary: Vocabulary, end_ids: Iterable[int], *, vocab_size: int) -> None:
        """``vocab_size`` is the model's; ``end_ids`` are the tokens that end an answer.

        llguidance reads the vocabulary when the first grammar is checked, not here.
        """
        self.vocab_size = vocab_size
        self.end_ids = tuple(sorted(end_ids))
        self._vocabulary = vocabulary
        self._lock = threading.Lock()
        self._tokenizer: llguidance.LLTokenizer | None = None
        self._special_ids: dict[str, int] = {}
        self._compiled: OrderedDict[bytes, _Compiled] = OrderedDict()
        self._num_bytes = 0

    def check(self, grammar: Grammar, *, param: str | None = None) -> None:
        """Compile the grammar for ``matcher``. Raises InvalidRequest with ``param``."""
        try:
            self._get(grammar)
        except InvalidRequest as error:
            raise InvalidRequest(error.message, param=param, code=error.code) from error

    def matcher(self, grammar: Grammar) -> llguidance.LLMatcher:
        """Return a new matcher at the start of the grammar. Raises InvalidRequest."""
        return self._get(grammar).deep_copy()

    def forget(self, grammar: Grammar) -> None:
        """Drop the compiled grammar: a matcher of it has reached a limit."""
        key = _key(grammar)
        with self._lock:
            if self._compiled.pop(key, None) is not None:
                self._num_bytes -= _estimated_bytes(key)

    def _get(self, grammar: Grammar) -> llguidance.LLMatcher:
        key = _key(grammar)
        with self._lock:
            compiled = self._compiled.get(key)
            if compiled is not None and compiled.num_uses < MAX_USES:
                self._compiled.move_to_end(key)
                compiled.num_uses += 1
                return compiled.matcher
            tokenizer = self._tokenizer or self._load()
        matcher = on_deep_stack(lambda: self._compile(grammar, tokenizer))
        with self._lock:
            self._keep(key, matcher)
        return matcher

    def _keep(self, key: bytes, matcher: llguidance.LLMatcher) -> None:
        if key not in self._compiled:
            self._num_bytes += _estimated_bytes(key)
        self._compiled[key] = _Compiled(matcher)
        while len(self._compiled) > MAX_COMPILED or self._num_bytes > MAX_COMPILED_BYTES:
            oldest, _ = self._compiled.popitem(last=False)
            self._num_bytes -= _estimated_bytes(oldest)

    def _compile(self, grammar: Grammar, tokenizer: llguidance.LLTokenizer) -> llguidance.LLMatcher:
        text = self._to_lark(grammar)
        matcher, problem = self._try(text, tokenizer)
        if matcher is None:
            lenient = self._to_lark(grammar, is_lenient=True)
            if lenient != text:
                matcher, _ = self._try(lenient, tokenizer)
        if matcher is None:
            raise InvalidRequest(problem, code="invalid_grammar")
        return matcher

    def _to_lark(self, grammar: Grammar, *, is_lenient: bool = False) -> str:
        return to_lark(
            grammar,
            special_ids=self._special_ids,
            end_ids=frozenset(self.end_ids),
            is_lenient=is_lenient,
        )

    def _try(
        self, text: str, tokenizer: llguidance.LLTokenizer
    ) -> tuple[llguidance.LLMatcher | None, str]:
        if len(text) > MAX_LARK_BYTES:
            return None, f"The grammar is too large: {len(text)} bytes."
        matcher = llguidance.LLMatcher(tokenizer, text, log_level=0, limits=_limits())
        if matcher.is_error():
            return None, _error_message(matcher.get_error())
        if not self._can_begin(matcher.deep_copy()):
            return None, "The grammar cannot be satisfied, or is too complex."
        return matcher, ""

    def _can_begin(self, matcher: llguidance.LLMatcher) -> bool:
        """Whether a few first tokens match; many grammars that are too complex fail there."""
        ends = sum(1 << token_id for token_id in self.end_ids)
        for _ in range(_NUM_TRIED):
            mask = int.from_bytes(matcher.compute_bitmask(), "little")
            if matcher.is_error():
                return False
            if mask & ends and matcher.is_accepting():
                return True
            others = mask & ~ends
            if not others:
                return False
            matcher.consume_token((others & -others).bit_length() - 1)
        return not matcher.is_error()

    def _load(self) -> llguidance.LLTokenizer:
        if not self._vocabulary.is_exact or not self.end_ids:
            raise InvalidRequest(
                "This model's tokenizer does not allow for limits on the output's form.",
                code="unsupported_parameter",
            )
        token_bytes = self._vocabulary.token_bytes
        self._special_ids = {
            token_bytes(token_id).decode(): token_id for token_id in self._vocabulary.special_ids
        }
        adapter = _TokenizerAdapter(
            [token_bytes(token_id) for token_id in range(self.vocab_size)],
            special_ids=[i for i in sorted(self._vocabulary.special_ids) if i < self.vocab_size],
            end_id=self.end_ids[0],
        )
        self._tokenizer = llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(adapter), eos_token=list(self.end_ids)
        )
        return self._tokenizer


@dataclasses.dataclass(slots=True)
class _Compiled:
    """A matcher at the start of its grammar, and how often it was copied."""

    matcher: llguidance.LLMatcher
    num_uses: int = 0


class _TokenizerAdapter:
    """The vocabulary in the form that llguidance reads."""

    bos_token_id = None

    def __init__(self, tokens: Sequence[bytes], *, special_ids: list[int], end_id: int) -> None:
        self.tokens = tokens
        self.special_token_ids = special_ids
        self.eos_token_id = end_id

    def __call__(self, _text: bytes) -> list[int]:
        """Tokenize. Unused, because no token is forced."""
        return []


def _key(grammar: Grammar) -> bytes:
    try:
        key = msgspec.msgpack.encode(grammar)
    except (UnicodeEncodeError, RecursionError) as error:
        raise InvalidRequest("The grammar is not valid text.", code="invalid_grammar") from error
    if len(key) > MAX_BYTES:
        raise InvalidRequest(
            f"The grammar has {len(key)} bytes, more than {MAX_BYTES}.", code="invalid_grammar"
        )
    return key


def _estimated_bytes(key: bytes) -> int:
    return _BASE_BYTES + _BYTES_PER_BYTE * len(key)


def _error_message(error: str) -> str:
    """Return llguidance's message without line numbers, which refer to generated text."""
    first = error.split(": ", 1)[-1] if error.startswith("at ") else error
    lines = [line.strip() for line in first.splitlines() if "|" not in line and line.strip(" ^")]
    return " ".join(lines)[:300]


def _limits() -> llguidance.LLParserLimits:
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
