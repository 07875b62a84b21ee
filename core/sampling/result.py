"""Results of one step: tokens on their way to the host, and what each sequence got."""

from __future__ import annotations

import enum
from typing import Any, TypeAlias

import msgspec
import torch

from core.contract.messages import PromptLogprobs, TokenLogprob
from core.sampling.batch import SamplingBatch
from core.sampling.greedy import MASKED
from core.sampling.logprobs import lines, unpack
from core.system.pinned import Download


class RowFailure(enum.Enum):
    """Why a row has no token.

    ``NAN``: its logits contain NaN or infinity. ``MASKED``: every logit is -inf, because of what
    the request allows.
    """

    NAN = "nan"
    MASKED = "masked"


class SampledTokens(msgspec.Struct, frozen=True):
    """The tokens of one sequence in one step, and their raw log-probabilities if requested.

    ``logprobs`` is aligned with ``token_ids``; its text offsets are 0, the text side sets them.
    With a ``failure`` there is no token and the request must end with an error.
    """

    token_ids: list[int]
    logprobs: list[TokenLogprob] | None = None
    failure: RowFailure | None = None


class SequenceResult(msgspec.Struct, frozen=True):
    """Result of one step for one scheduled sequence.

    ``sampled`` is None until the last prompt token is computed. ``prompt_logprobs`` are the
    entries of the prompt positions that follow each token of this chunk.
    """

    sampled: SampledTokens | None
    prompt_logprobs: PromptLogprobs | None = None


Tokens: TypeAlias = torch.Tensor | list[int]
"""A token of each row, negative where there is none: int64 on the device, or on the host."""


class PendingTokens:
    """Tokens that are being copied to the host, if they were chosen on a device. Core thread only.

    ``must_land`` says that the next step's edits read these tokens, so the host needs them before
    the next launch.
    """

    def __init__(self, tokens: Tokens, raw: torch.Tensor | None, batch: SamplingBatch) -> None:
        """``raw`` are the unedited logits of the rows ``batch.reported``."""
        self.tokens = tokens
        self.must_land = batch.reads_tokens
        self._sequences = batch.sequences
        self._num_reported = 0
        self._download: Download | None = None
        if raw is None or batch.reported is None:
            if isinstance(tokens, torch.Tensor):
                self._download = Download(tokens)
        else:  # one transfer: the tokens, then the lines of log-probabilities
            reported = batch.reported
            tokens = torch.as_tensor(tokens)
            self._num_reported = reported.num_rows
            packed = lines(raw, reported.of(tokens).clamp(min=0), reported.num_top)
            self._download = Download(torch.cat([tokens.double(), packed.flatten()]))

    def collect(self) -> list[SampledTokens]:
        """Return one result per sequence. Waits for the copy only."""
        numbers: Any = self.tokens if self._download is None else self._download.tolist()
        if not self._num_reported:
            return [_result(token_id) for token_id in numbers]
        num_tokens = len(self._sequences)
        num_columns = (len(numbers) - num_tokens) // self._num_reported
        results = []
        start = num_tokens
        for token_id, sequence in zip(map(int, numbers[:num_tokens]), self._sequences, strict=True):
            if sequence.params.logprobs is None:
                results.append(_result(token_id))
                continue
            line = numbers[start : start + num_columns]
            results.append(_result(token_id, line, sequence.params.logprobs))
            start += num_columns
        return results


def _result(token_id: int, line: list[float] | None = None, num_top: int = 0) -> SampledTokens:
    """Make the result of one row. ``line`` is its line of ``lines``, None without logprobs."""
    if token_id < 0:
        failure = RowFailure.MASKED if token_id == MASKED else RowFailure.NAN
        return SampledTokens([], failure=failure)
    if line is None:
        return SampledTokens([token_id])
    logprob = unpack(line, token_id, num_top)
    if logprob is None:
        return SampledTokens([], failure=RowFailure.NAN)
    return SampledTokens([token_id], [logprob])
