"""MaskLanes: threads that fill masks, so that slow ones delay no others."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from core.contract.errors import is_survivable
from core.grammar.compiler import GrammarCompiler
from core.grammar.jobs import FilledMasks, MaskJob
from core.grammar.masks import Masks
from core.grammar.progress import NotCompiled

logger = logging.getLogger("roseinfer.core")

SLOW_SECONDS = 0.003
"""CPU time of a mask after which the next one of its sequence is filled in the slow lane."""

MAX_TOGETHER_SECONDS = 0.01
"""Wall time of masks filled together, after which the next ones are filled and measured alone."""

MAX_THREADS = 8
"""Threads that work on masks filled together, at most."""

SLOW_NICE = 10
"""Added to the niceness of the threads that fill slow masks and compile again (Linux)."""


class MaskLanes:
    """Fills the masks of jobs on three threads, which start when they are needed.

    - The quick lane fills the masks of all sequences whose last mask was quick, together. New ones
      follow, one by one, because the CPU time of a mask is only known if it is filled alone.
    - The slow lane fills one slow mask after the other.
    - The third lane compiles grammars again whose lexer is used up, or that the cache has dropped.

    ``submit`` and ``wait`` belong to the core thread.
    """

    def __init__(self, compiler: GrammarCompiler, device: torch.device) -> None:
        """``device`` is that of the logits."""

        def masks(num_threads: int) -> Masks:
            return Masks(
                compiler.vocab_size,
                compiler.end_ids,
                device,
                new_idle=compiler.failed_matcher,
                num_threads=num_threads,
                times=compiler.times.mask_histogram(),
            )

        self._filled = threading.Condition()
        self._quick = _Lane("grammar", self._fill_quick, masks(MAX_THREADS), self._fail)
        self._slow = _Lane("grammar-slow", self._fill_alone, masks(1), self._fail, SLOW_NICE)
        self._again = _Lane("grammar-again", self._compile_again, masks(1), self._fail, SLOW_NICE)

    @property
    def has_started(self) -> bool:
        """Whether there was a job."""
        return self._quick.has_started or self._slow.has_started

    def submit(self, jobs: list[MaskJob]) -> None:
        """Start to fill the masks of these jobs."""
        slow = [job for job in jobs if (job.progress.seconds or 0.0) >= SLOW_SECONDS]
        quick = [job for job in jobs if (job.progress.seconds or 0.0) < SLOW_SECONDS]
        if quick:
            self._quick.submit(quick)
        for job in slow:
            self._slow.submit([job])

    def wait(self, jobs: list[MaskJob], seconds: float) -> None:
        """Wait until all of these jobs are done, but no longer than this."""
        if not all(job.is_done for job in jobs):
            with self._filled:
                self._filled.wait_for(lambda: all(job.is_done for job in jobs), seconds)

    def _fill_quick(self, jobs: list[MaskJob], masks: Masks) -> None:
        jobs = [job for job in jobs if job.is_wanted]
        known = [job for job in jobs if job.progress.seconds is not None]
        new = [job for job in jobs if job.progress.seconds is None]
        start = time.monotonic()
        if known:
            self._fill(known, masks)
        if len(known) > 1 and time.monotonic() - start > MAX_TOGETHER_SECONDS:
            for job in known:
                job.progress.seconds = None
        self._fill_alone(new, masks)

    def _fill_alone(self, jobs: list[MaskJob], masks: Masks) -> None:
        for job in jobs:
            if job.is_wanted:
                self._fill([job], masks)

    def _fill(self, jobs: list[MaskJob], masks: Masks) -> None:
        """Fill the masks of these jobs together; the CPU time of a single one is measured."""
        begun: list[tuple[MaskJob, list[int]]] = []
        for job in jobs:
            try:
                begun.append((job, job.progress.begin(job.token_ids)))
            except NotCompiled:
                self._again.submit([job])
        self._advance_and_fill(begun, masks)

    def _compile_again(self, jobs: list[MaskJob], masks: Masks) -> None:
        for job in jobs:
            if job.is_wanted:
                self._advance_and_fill([(job, job.progress.restart())], masks)

    def _advance_and_fill(self, begun: list[tuple[MaskJob, list[int]]], masks: Masks) -> None:
        begin = time.monotonic()
        again = masks.consume([(job.progress, token_ids) for job, token_ids in begun])
        for row in again:
            self._again.submit([begun[row][0]])
        jobs = [job for row, (job, _) in enumerate(begun) if row not in again]
        if not jobs:
            return
        start = time.thread_time()
        words, failed = masks.fill([job.progress for job in jobs])
        if len(jobs) == 1:
            jobs[0].progress.count(time.thread_time() - start)
            if jobs[0].progress.failure is not None:
                words[0] = 0
        for row in failed:
            self._again.submit([jobs[row]])
        packed = masks.packed(words)
        masks.times.observe(time.monotonic() - begin)
        self._finish(jobs, packed, without=frozenset(failed))

    def _finish(
        self, jobs: list[MaskJob], filled: FilledMasks, without: frozenset[int] = frozenset()
    ) -> None:
        for row, job in enumerate(jobs):
            if row not in without:
                job.masks, job.row = filled, row
                job.is_done = True
        with self._filled:
            self._filled.notify_all()

    def _fail(self, jobs: list[MaskJob], error: BaseException) -> None:
        """End the sequences of jobs that raised for a reason of ours."""
        for job in jobs:
            if not job.is_done:
                job.progress.fail(type(error).__name__)
                job.is_done = True
        with self._filled:
            self._filled.notify_all()


class _Lane:
    """One thread that works on lists of jobs, one after the other."""

    def __init__(
        self,
        name: str,
        work: Callable[[list[MaskJob], Masks], None],
        masks: Masks,
        fail: Callable[[list[MaskJob], BaseException], None],
        nice: int = 0,
    ) -> None:
        self._name = name
        self._work = work
        self._masks = masks
        self._fail = fail
        self._nice = nice
        self._executor: ThreadPoolExecutor | None = None

    @property
    def has_started(self) -> bool:
        return self._executor is not None

    def submit(self, jobs: list[MaskJob]) -> None:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(
                1, thread_name_prefix=self._name, initializer=self._start
            )
        self._executor.submit(self._run, jobs)

    def _start(self) -> None:
        if self._nice and sys.platform == "linux":  # where threads have priorities of their own
            with contextlib.suppress(OSError):
                os.nice(self._nice)

    def _run(self, jobs: list[MaskJob]) -> None:
        try:
            self._work(jobs, self._masks)
        except BaseException as error:  # a panic in Rust is no Exception
            if not is_survivable(error):
                raise
            logger.exception("masks could not be filled")
            self._fail(jobs, error)
