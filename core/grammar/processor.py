"""GrammarProcessor: masks tokens that the grammar of a request does not allow."""

from __future__ import annotations

import weakref

import torch

from core.contract.params import SamplingParams
from core.grammar.compiler import GrammarCompiler
from core.grammar.jobs import FilledMasks, MaskJob
from core.grammar.lanes import MaskLanes
from core.grammar.masks import apply, exclude_all
from core.grammar.progress import Progress
from core.state.sequence import Sequence

MAX_WAIT_SECONDS = 0.025
"""Time that a step waits for masks after its forward pass, for all grammars together."""


class GrammarProcessor:
    """``grammar``. The masks are filled during the forward pass.

    A mask depends only on the tokens so far. ``prepare`` starts threads, which advance the matchers
    by the new tokens and fill the masks, mostly without the interpreter lock; ``apply`` waits for
    them, but no longer than ``max_wait_seconds``. A sequence whose mask is late gets no token in
    this step: its row is masked, and ``Sequence.awaits_mask`` is true. A job is kept until its
    sequence has a new token, so a step that is repeated finds its mask.

    If a grammar fails or raises, its whole row is masked and ``Sequence.failure`` says why, which
    fails only that sequence. Core thread only.
    """

    reads_tokens = True

    def __init__(
        self,
        compiler: GrammarCompiler,
        device: torch.device,
        *,
        max_wait_seconds: float = MAX_WAIT_SECONDS,
    ) -> None:
        """``device`` is that of the logits."""
        self._compiler = compiler
        self._max_wait_seconds = max_wait_seconds
        self._jobs: weakref.WeakKeyDictionary[Sequence, MaskJob] = weakref.WeakKeyDictionary()
        self._lanes = MaskLanes(compiler, device)

    def applies(self, params: SamplingParams) -> bool:
        return params.grammar is not None

    def prepare(self, sequences: list[Sequence]) -> None:
        """Start to fill the masks of the next tokens of ``sequences``."""
        new = []
        for sequence in sequences:
            job = self._jobs.get(sequence)
            if job is None:
                assert sequence.params.grammar is not None
                salt = sequence.request.cache_salt
                progress = Progress(self._compiler, sequence.params.grammar, salt=salt)
                job = MaskJob(sequence, progress, sequence.num_prompt_tokens)
            elif job.is_done and job.end < len(sequence.token_ids):
                job = MaskJob(sequence, job.progress, job.end)
            else:
                continue
            self._jobs[sequence] = job
            new.append(job)
        if new:
            self._lanes.submit(new)

    def apply(self, logits: torch.Tensor, rows: list[int], sequences: list[Sequence]) -> None:
        self.prepare(sequences)
        jobs = [self._jobs[sequence] for sequence in sequences]
        self._lanes.wait(jobs, self._max_wait_seconds)
        excluded: list[int] = []
        groups: dict[int, tuple[FilledMasks, list[int], list[int]]] = {}
        for row, sequence, job in zip(rows, sequences, jobs, strict=True):
            sequence.awaits_mask = not job.is_done or job.end < len(sequence.token_ids)
            if sequence.awaits_mask:
                excluded.append(row)
                continue
            sequence.failure = job.progress.failure
            if job.masks is None:
                excluded.append(row)
                continue
            group = groups.setdefault(id(job.masks), (job.masks, [], []))
            group[1].append(row)
            group[2].append(job.row)
        for masks, target, source in groups.values():
            is_whole = source == list(range(len(masks.tensor)))
            apply(logits, target, masks.tensor if is_whole else masks.tensor[source])
        if excluded:
            exclude_all(logits, excluded)
