"""PendingTokens: tokens that were chosen on the device and are being copied to the host."""

from __future__ import annotations

import torch

from core.pinned import Download
from core.sampling.draw import FAILED
from core.sampling.logprobs import pack, unpack
from core.sampling.plan import Plan
from core.sampling.result import SampledTokens
from core.sequence import Sequence


class PendingTokens:
    """What the sampler chose for a batch. Core thread only.

    ``tokens`` is int64 [num_rows] on the device, below 0 where there is none. ``must_land`` says
    that the batch's next tokens depend on these, so the host must know them before the next
    launch.
    """

    def __init__(self, tokens: torch.Tensor, raw: torch.Tensor | None, plan: Plan) -> None:
        """``raw`` holds the log-probabilities of the reported rows."""
        self.tokens = tokens
        self.must_land = plan.reads_tokens
        self._plan = plan
        self._has_lines = raw is not None
        if raw is None or plan.reported is None:
            self._download = Download(tokens)
        else:  # one transfer: the tokens, then the lines of ``pack``
            packed = pack(raw, plan.reported.of(tokens).clamp(min=0), plan.num_top)
            self._download = Download(torch.cat([tokens.double(), packed.flatten()]))

    def collect(self) -> list[SampledTokens]:
        """One result per sequence. Waits for the copy, and for nothing launched after it."""
        numbers = self._download.tolist()
        sequences, reported = self._plan.sequences, self._plan.reported
        if not self._has_lines or reported is None:
            return _results(numbers, [], sequences)
        num_tokens = len(sequences)
        lines = numbers[num_tokens:]
        num_columns = len(lines) // len(reported.sequences)
        return _results(
            [int(token) for token in numbers[:num_tokens]],
            [lines[i : i + num_columns] for i in range(0, len(lines), num_columns)],
            sequences,
        )


def _results(
    token_ids: list[int], lines: list[list[float]], sequences: list[Sequence]
) -> list[SampledTokens]:
    """``lines`` belong to the sequences that want log-probabilities, in order."""
    results = []
    remaining = iter(lines)
    for token_id, sequence in zip(token_ids, sequences, strict=True):
        num_top = sequence.params.logprobs
        logprob = None if num_top is None else unpack(next(remaining), max(token_id, 0), num_top)
        if token_id == FAILED or (num_top is not None and logprob is None):
            results.append(SampledTokens([], None, failed=True))
        else:
            results.append(SampledTokens([token_id], None if logprob is None else [logprob]))
    return results
