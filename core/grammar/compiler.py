"""GrammarCompiler: compiles grammars to llguidance matchers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import llguidance
import msgspec

from core.contract.config import GrammarLimits
from core.contract.errors import InvalidRequest, RequestCancelled
from core.contract.grammar import DroppedKeyword, Grammar
from core.grammar.cache import CompiledGrammar, GrammarCache
from core.grammar.matcher.matchers import MatcherFactory, TokenTable, on_deep_stack
from core.grammar.trial.pool import IS_SUPPORTED, TrialPool
from core.observe.histogram import SECONDS, Counts, Histogram
from core.text.vocabulary import Vocabulary

logger = logging.getLogger("roseinfer.core")

MAX_BYTES = 512 * 1024
"""Largest grammar accepted, in bytes of its message."""

MAX_USES = 256
"""Matchers of one grammar share its lexer, whose states are limited: after this many matchers the
grammar is compiled again, in the background."""

MAX_GROWTH = 16 * 2**20
"""So are grammars whose lexer has grown by about this many bytes, as tokens were matched."""

BASE_BYTES = 64 * 1024
"""Counted for every compiled grammar, besides the bytes that were measured."""

BYTES_PER_BYTE = 16
"""Bytes of a compiled grammar per byte of its text, where nothing was measured."""

WAIT_SECONDS = 0.05
"""A request that waits for the compilation of another looks this often whether it is cancelled."""


def _never() -> bool:
    return False


class GrammarCompiler:
    """Checks grammars and keeps them compiled for each sequence. Any thread may call it.

    A new grammar is compiled in a child process first, where the system limits its time and
    memory. What passes costs the same here, where it is compiled again, because matchers cannot
    cross processes. Without child processes only llguidance's own limits bound the cost.

    The most recently used grammars stay compiled, keyed by content and weighed by the memory that
    was measured, and by what the tokens matched since are expected to have added. Grammars that
    were refused are remembered too. Both are shared only by requests with the same ``salt``: how
    long a request takes shows whether its grammar was known.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        end_ids: Iterable[int],
        *,
        vocab_size: int,
        limits: GrammarLimits | None = None,
    ) -> None:
        """``vocab_size`` is the model's; ``end_ids`` are the tokens that end an answer.

        Without ``limits`` there are no child processes. The vocabulary is read, and the first
        process started, when the first grammar is checked.
        """
        self.vocab_size = vocab_size
        self.end_ids = tuple(sorted(end_ids))
        self.times = GrammarTimes()
        self._vocabulary = vocabulary
        self._limits = limits
        self._changed = threading.Condition()
        self._loading = threading.Lock()
        self._factory: MatcherFactory | None = None
        self._pool: TrialPool | None = None
        self._cache = GrammarCache((limits or GrammarLimits()).cache_memory)
        self._being_compiled: set[bytes] = set()
        self._background: ThreadPoolExecutor | None = None

    def check(
        self,
        grammar: Grammar,
        *,
        salt: str = "",
        param: str | None = None,
        is_cancelled: Callable[[], bool] = _never,
    ) -> tuple[DroppedKeyword, ...]:
        """Compile the grammar for ``kept``. Returns the keywords of its schemas that were dropped.

        Blocks; on a worker thread only.

        ``is_cancelled`` is asked often from this thread; a compilation in a child process is ended
        when it says so. Raises InvalidRequest with ``param``, RequestCancelled, and Unavailable if
        no child process can be started.
        """
        try:
            return self._check(grammar, salt, is_cancelled).dropped
        except InvalidRequest as error:
            raise InvalidRequest(error.message, param=param, code=error.code) from error

    def check_size(self, grammar: Grammar, *, param: str | None = None) -> None:
        """Raise InvalidRequest with ``param`` if the grammar is too large, or no text."""
        _key(grammar, param=param)

    def dropped(self, grammar: Grammar, *, salt: str = "") -> tuple[DroppedKeyword, ...] | None:
        """Return what ``check`` returns, None if the grammar is not compiled. Never compiles."""
        key = _key(grammar, salt)
        with self._changed:
            compiled = self._cache.get(key)
        return None if compiled is None else compiled.dropped

    def kept(self, grammar: Grammar, *, salt: str = "") -> CompiledGrammar | None:
        """Return the grammar for a new matcher if it is compiled, else None. Never compiles."""
        key = _key(grammar, salt)
        with self._changed:
            compiled = self._cache.get(key)
            if compiled is not None:
                self._use(compiled)
        return compiled

    def matched(self, compiled: CompiledGrammar, num_tokens: int) -> None:
        """Count what a matcher of the grammar has matched; others of the cache may give way."""
        if not compiled.bytes_per_token:
            return
        with self._changed:
            is_kept = self._cache.grow(compiled, num_tokens)
            if is_kept and compiled.growth > MAX_GROWTH:
                self._start_renewal(compiled)

    def failed_matcher(self) -> llguidance.LLMatcher:
        """Return a matcher that has failed, so that it does nothing."""
        return self._load().failed_matcher()

    @property
    def factory(self) -> MatcherFactory:
        """Makes matchers, and ends the numbers of JSON."""
        return self._load()

    def compile_again(self, grammar: Grammar, *, salt: str = "") -> llguidance.LLMatcher:
        """Return a matcher with a lexer of its own. Blocks. Raises RoseInferError."""
        with self._changed:
            compiled = self._cache.get(key := _key(grammar, salt))
        if compiled is None:
            return self._compile(key, grammar, _never).matcher
        factory = self._load()
        return on_deep_stack(lambda: factory.of_text(compiled.text))

    def renew(self, grammar: Grammar, *, salt: str = "") -> None:
        """Replace the lexer of later matchers, in the background: it has reached a limit."""
        key = _key(grammar, salt)
        with self._changed:
            compiled = self._cache.get(key)
            if compiled is not None:
                self._start_renewal(compiled)

    def close(self) -> None:
        """End the child processes."""
        with self._changed:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _check(
        self, grammar: Grammar, salt: str, is_cancelled: Callable[[], bool]
    ) -> CompiledGrammar:
        """Have the grammar compiled. One thread compiles it, others wait for that one."""
        key = _key(grammar, salt)
        while True:
            with self._changed:
                if (compiled := self._cache.get(key)) is not None:
                    self._use(compiled)
                    return compiled
                if (refused := self._cache.refusal(key)) is not None:
                    raise InvalidRequest(refused.message, code=refused.code)
                if key not in self._being_compiled:
                    self._being_compiled.add(key)
                    break
                self._changed.wait(WAIT_SECONDS)
            if is_cancelled():
                raise RequestCancelled
        try:
            with self.times.compiling():
                compiled = self._compile(key, grammar, is_cancelled)
        except InvalidRequest as error:
            with self._changed:
                self._cache.refuse(key, error)
            raise
        else:
            with self._changed:
                self._cache.keep(compiled)
            return compiled
        finally:
            with self._changed:
                self._being_compiled.discard(key)
                self._changed.notify_all()

    def _compile(
        self, key: bytes, grammar: Grammar, is_cancelled: Callable[[], bool]
    ) -> CompiledGrammar:
        factory = self._load()
        pool = self._pool
        if pool is None:
            written, matcher = on_deep_stack(lambda: factory.compile(grammar))
            num_bytes = BASE_BYTES + BYTES_PER_BYTE * len(written.text)
            return CompiledGrammar(key, written.text, matcher, num_bytes, dropped=written.dropped)
        verdict = pool.run(grammar, is_cancelled)
        if is_cancelled():
            raise RequestCancelled
        matcher = on_deep_stack(lambda: factory.of_text(verdict.text))
        num_bytes = BASE_BYTES + len(verdict.text) + verdict.num_bytes
        return CompiledGrammar(
            key, verdict.text, matcher, num_bytes, verdict.bytes_per_token, verdict.dropped
        )

    def _use(self, compiled: CompiledGrammar) -> None:
        """Count a use, and replace the grammar's lexer in the background in time."""
        compiled.num_uses += 1
        if compiled.num_uses >= MAX_USES:
            self._start_renewal(compiled)

    def _start_renewal(self, compiled: CompiledGrammar) -> None:
        if compiled.is_being_renewed:
            return
        compiled.is_being_renewed = True
        if self._background is None:
            self._background = ThreadPoolExecutor(1, thread_name_prefix="grammar-renewal")
        self._background.submit(self._renew, compiled)

    def _renew(self, compiled: CompiledGrammar) -> None:
        assert self._factory is not None
        factory = self._factory
        try:
            matcher = on_deep_stack(lambda: factory.of_text(compiled.text))
        except InvalidRequest:  # it compiled before
            logger.exception("a grammar does not compile again")
            return
        with self._changed:
            if self._cache.get(compiled.key) is compiled:
                self._cache.keep(compiled.renewed(matcher))

    def _load(self) -> MatcherFactory:
        with self._loading:
            if self._factory is None:
                table = TokenTable.of(self._vocabulary, self.end_ids, self.vocab_size)
                self._pool = self._started_pool(table)
                self._factory = MatcherFactory(table)
            return self._factory

    def _started_pool(self, table: TokenTable) -> TrialPool | None:
        """Start a child process, which gets ready while this one reads the vocabulary."""
        if self._limits is None:
            return None
        if not IS_SUPPORTED:
            logger.warning("grammars are compiled without limits on time and memory: not Linux")
            return None
        pool = TrialPool(table, self._limits)
        try:
            pool.warm()
        except OSError as error:
            logger.warning(
                "grammars are compiled without limits on time and memory: no child process can be "
                "started (%s)",
                error.strerror,
            )
            return None
        return pool


def _key(grammar: Grammar, salt: str = "", *, param: str | None = None) -> bytes:
    """Return salt and content of a grammar. Raises InvalidRequest if it is too large or no text."""
    try:
        key = msgspec.msgpack.encode(grammar)
    except (UnicodeEncodeError, RecursionError) as error:
        raise InvalidRequest(
            "The grammar is not valid text.", param=param, code="invalid_grammar"
        ) from error
    if len(key) > MAX_BYTES:
        raise InvalidRequest(
            f"The grammar has {len(key)} bytes, more than {MAX_BYTES}.",
            param=param,
            code="invalid_grammar",
        )
    return msgspec.msgpack.encode(salt) + key


class GrammarTimes:
    """Wall times in seconds. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._compilations = Histogram(SECONDS)
        self._masks = [Histogram(SECONDS)]

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Count the time inside, in which a new grammar is compiled or refused."""
        start, is_cancelled = time.monotonic(), False
        try:
            yield
        except RequestCancelled:
            is_cancelled = True
            raise
        finally:
            if not is_cancelled:
                with self._lock:
                    self._compilations.observe(time.monotonic() - start)

    def mask_histogram(self) -> Histogram:
        """Return a histogram for one thread that fills masks."""
        histogram = Histogram(SECONDS)
        with self._lock:
            self._masks.append(histogram)
        return histogram

    @property
    def compilations(self) -> Counts:
        with self._lock:
            return self._compilations.read()

    @property
    def masks(self) -> Counts:
        """Of all threads. A value is the time to fill the masks of some sequences together."""
        with self._lock:
            first, *others = [histogram.read() for histogram in self._masks]
        for other in others:
            first += other
        return first
