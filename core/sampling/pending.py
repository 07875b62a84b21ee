"""PendingTokens: tokens that are chosen on the device, and on their way to the host."""

from __future__ import annotations

import torch

from core.pinned import Download
from core.sampling.draw import FAILED, UNRESOLVED
from core.sampling.groups import Ranked
from core.sampling.logprobs import pack, unpack
from core.sampling.plan import Plan
from core.sampling.result import SampledTokens
from core.sampling.rows import Rows
from core.sequence import Sequence

_WIDENING = 32


class PendingTokens:
    """What the sampler chose for a batch. Core thread only.

    ``tokens`` is int64 [num_rows] on the device, below 0 where there is none (yet).
    ``must_land`` says that the batch's next tokens depend on which these are.
    """

    def __init__(
        self,
        tokens: torch.Tensor,
        logits: torch.Tensor,
        raw: torch.Tensor | None,
        plan: Plan,
        *,
        num_candidates: int,
    ) -> None:
        """``logits`` are the edited ones, ``raw`` the log-probabilities of the reported rows."""
        self.tokens = tokens
        self._raw = raw
        self._plan = plan
        self._num_candidates = num_candidates
        self._logits = logits if plan.may_be_unresolved else None
        self._download = self._report(tokens)

    @property
    def must_land(self) -> bool:
        """See above."""
        return self._plan.reads_tokens

    def collect(self) -> list[SampledTokens]:
        """One result per sequence. Waits for the device, and for nothing told to it since.

        It waits again in the rare case that a limited draw falls outside the best candidates:
        such a row is drawn anew from more of them, and its token ``was_late``.
        """
        with torch.inference_mode():
            token_ids, lines = self._read()
            late = [token == UNRESOLVED for token in token_ids]
            if any(late):
                tokens = self.tokens.clone()
                self._widen(tokens, token_ids)
                self._download = self._report(tokens)
                token_ids, lines = self._read()
        return _results(token_ids, lines, late, self._plan.sequences)

    def _report(self, tokens: torch.Tensor) -> Download:
        """Everything a step has to say, in one transfer: tokens, and ``pack``'s lines if any."""
        reported = self._plan.reported
        if self._raw is None or reported is None:
            return Download(tokens)
        packed = pack(self._raw, reported.of(tokens).clamp(min=0), self._plan.num_top)
        return Download(torch.cat([tokens.double(), packed.flatten()]))

    def _read(self) -> tuple[list[int], list[list[float]]]:
        numbers = self._download.tolist()
        num_tokens, reported = len(self.tokens), self._plan.reported
        if self._raw is None or reported is None:
            return numbers, []
        lines = numbers[num_tokens:]
        num_columns = len(lines) // len(reported.sequences)
        return (
            [int(token) for token in numbers[:num_tokens]],
            [lines[i : i + num_columns] for i in range(0, len(lines), num_columns)],
        )

    def _widen(self, tokens: torch.Tensor, token_ids: list[int]) -> None:
        """Draw the unresolved rows again from more candidates, in the end from all."""
        logits, sequences = self._logits, self._plan.sequences
        assert logits is not None
        vocab_size = logits.shape[1]
        num_candidates = self._num_candidates
        while unresolved := [row for row, token in enumerate(token_ids) if token == UNRESOLVED]:
            num_candidates *= _WIDENING
            if num_candidates * 8 > vocab_size:  # sorting all costs little more then
                num_candidates = vocab_size
            rows = Rows.select(unresolved, sequences, logits.device)
            own = rows.of(logits)
            wider = Ranked(Rows(rows.sequences, None), num_candidates, vocab_size, logits.device)
            rows.put(tokens, wider.draw(own, is_late=True))
            token_ids = tokens.tolist()


def _results(
    token_ids: list[int], lines: list[list[float]], late: list[bool], sequences: list[Sequence]
) -> list[SampledTokens]:
    """``lines`` belong to the sequences that want log-probabilities, in order."""
    results = []
    remaining = iter(lines)
    for token_id, was_late, sequence in zip(token_ids, late, sequences, strict=True):
        num_top = sequence.params.logprobs
        logprob = None if num_top is None else unpack(next(remaining), max(token_id, 0), num_top)
        if token_id == FAILED or (num_top is not None and logprob is None):
            results.append(SampledTokens([], None, failed=True))
        else:
            logprobs = None if logprob is None else [logprob]
            results.append(SampledTokens([token_id], logprobs, was_late=was_late))
    return results
