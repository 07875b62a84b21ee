"""GrammarProcessor: only tokens that the grammar of a request allows."""

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
    """``grammar``. Masks are filled beside the model: ``prepare`` starts it, ``apply`` waits.

    What a mask depends on is known before the forward pass. So one thread advances the matchers
    by the tokens sampled since and fills the masks of the whole batch, with the interpreter free
    for most of it. Progress belongs to a sequence and dies with it; tokens that are computed
    again after a preemption are not new and change nothing.

    A row whose grammar fails is masked as a whole, which fails that sequence alone.
    """

    reads_tokens = True

    def __init__(self, compiler: GrammarCompiler, device: torch.device) -> None:
        """``device`` is that of the logits."""
        self._device = device
        self._compiler = compiler
        self._progress: weakref.WeakKeyDictionary[Sequence, Progress] = weakref.WeakKeyDictionary()
        self._worker: ThreadPoolExecutor | None = None
        self._masks = Masks(compiler.vocab_size, compiler.end_ids)
        self._coming: tuple[list[Sequence], Future[torch.Tensor]] | None = None

    def applies(self, params: SamplingParams) -> bool:
        """Whether there is a grammar."""
        return params.grammar is not None

    def prepare(self, sequences: list[Sequence]) -> None:
        """Begin to fill the masks of the next tokens of ``sequences``."""
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="grammar")
        work = []
        for sequence in sequences:
            progress = self._progress.get(sequence)
            if progress is None:
                progress = self._progress[sequence] = Progress(self._compiler, sequence)
            work.append((progress, progress.take_new(sequence)))
        self._coming = sequences, self._worker.submit(self._masks.fill, work, self._device)

    def apply(self, logits: torch.Tensor, rows: list[int], sequences: list[Sequence]) -> None:
        """Mask what is not allowed now."""
        if self._coming is None or self._coming[0] != sequences:
            self.prepare(sequences)
        assert self._coming is not None
        _, masks = self._coming
        self._coming = None
        apply(logits, rows, masks.result())
