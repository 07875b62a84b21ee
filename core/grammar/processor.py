"""GrammarProcessor: masks tokens that the grammar of a request does not allow."""

from __future__ import annotations

import weakref
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from core.contract.params import SamplingParams
from core.grammar.compiler import GrammarCompiler
from core.grammar.masks import Masks, apply
from core.grammar.progress import Progress
from core.sequence import Sequence


class GrammarProcessor:
    """``grammar``. The masks are filled during the forward pass.

    A mask depends only on the tokens so far. ``prepare`` starts the grammar thread, which advances
    the matchers by the new tokens and fills the masks of the batch, mostly without the interpreter
    lock; ``apply`` waits for it. The Progress of a sequence is dropped with the sequence. Tokens
    computed again after a preemption are not new.

    If a grammar fails or raises, its whole row is masked and ``Sequence.failure`` says why, which
    fails only that sequence.
    """

    reads_tokens = True

    def __init__(self, compiler: GrammarCompiler, device: torch.device) -> None:
        """``device`` is that of the logits."""
        self._device = device
        self._compiler = compiler
        self._progress: weakref.WeakKeyDictionary[Sequence, Progress] = weakref.WeakKeyDictionary()
        self._worker: ThreadPoolExecutor | None = None
        self._masks = Masks(compiler.vocab_size, compiler.end_ids)
        self._pending: tuple[list[Sequence], Future[torch.Tensor]] | None = None

    def applies(self, params: SamplingParams) -> bool:
        return params.grammar is not None

    def prepare(self, sequences: list[Sequence]) -> None:
        """Start to fill the masks of the next tokens of ``sequences``."""
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="grammar")
        work = []
        for sequence in sequences:
            progress = self._progress.get(sequence)
            if progress is None:
                progress = self._progress[sequence] = Progress(self._compiler, sequence)
            work.append((progress, progress.take_new(sequence)))
        self._pending = sequences, self._worker.submit(self._masks.fill, work, self._device)

    def apply(self, logits: torch.Tensor, rows: list[int], sequences: list[Sequence]) -> None:
        if self._pending is None or self._pending[0] != sequences:
            self.prepare(sequences)
        assert self._pending is not None
        _, masks = self._pending
        self._pending = None
        apply(logits, rows, masks.result())
        for sequence in sequences:
            sequence.failure = self._progress[sequence].failure
