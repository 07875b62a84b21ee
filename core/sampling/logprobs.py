"""Log-probabilities from the model's raw distribution, for rows that asked and prompts."""

from __future__ import annotations

import math

import numpy as np
import torch

from core.contract.errors import GenerationFailed
from core.contract.messages import TokenLogprob
from core.contract.params import MAX_TOP_LOGPROBS
from core.pinned import Download
from core.sampling.best import topk
from core.sampling.upload import upload

FLOOR = -9999.0
"""Written for every log-probability below it, so that no infinity leaves the engine."""

_WIDTH = MAX_TOP_LOGPROBS + 12
"""Candidates for the alternatives. It is the same for all requests, so that a request's
alternatives do not depend on what its neighbours asked for, and larger than the list, so that
equal values at its end are told apart by id as well."""


def log_softmax(logits: torch.Tensor) -> torch.Tensor:
    """Natural-log probabilities in float32 over the whole vocabulary, [num_rows, vocab_size]."""
    return logits.log_softmax(dim=1, dtype=torch.float32)


def best_logprobs(logprobs: torch.Tensor, num_top: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The ``num_top`` largest values of each row, descending, lower id first among equals.

    Returns values and token ids, both [num_rows, min(num_top, vocab_size)].
    """
    values, ids = topk(logprobs, min(_WIDTH, logprobs.shape[1]))
    ids, order = ids.sort(dim=1)
    values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values[:, :num_top], ids.gather(1, order)[:, :num_top]


def pack(logprobs: torch.Tensor, token_ids: torch.Tensor, num_top: int) -> torch.Tensor:
    """What is to be reported about each row, in one float64 tensor: one transfer to the host.

    ``logprobs`` is [num_rows, vocab_size], ``token_ids`` int64 [num_rows]. A row of the result is
    the token's own value, then the best values, then their ids: [num_rows, 1 + 2 * num_top] (or
    fewer columns when the vocabulary is smaller). Every value of a row comes from ``logprobs``, so
    a token has the same float wherever it stands.
    """
    own = logprobs.gather(1, token_ids[:, None])
    if num_top == 0:
        return own.double()
    values, ids = best_logprobs(logprobs, num_top)
    return torch.cat([own.double(), values.double(), ids.double()], dim=1)


def unpack(line: list[float], token_id: int, num_top: int) -> TokenLogprob | None:
    """One row of ``pack`` on the host, with ``num_top`` alternatives.

    None if the model's output was not a distribution.
    """
    if math.isnan(line[0]):
        return None
    width = len(line) // 2
    num_top = min(num_top, width)
    top = zip(line[1 : 1 + num_top], line[1 + width : 1 + width + num_top], strict=True)
    return TokenLogprob(
        token_id=token_id,
        logprob=max(line[0], FLOOR),
        top=tuple((int(top_id), max(value, FLOOR)) for value, top_id in top),
    )


class PromptScores:
    """Log-probabilities of some tokens of a prompt, computed on the device.

    ``logits`` is [num_targets, vocab_size] of any float dtype and is left as it is: row ``i`` is
    the model's output at the position before ``target_ids[i]``. Takes float32 memory of twice the
    logits' size; long prompts come in slices.
    """

    def __init__(self, logits: torch.Tensor, target_ids: list[int], num_top: int) -> None:
        """Begin, without waiting for the device."""
        self._target_ids = target_ids
        self._num_top = num_top
        with torch.inference_mode():
            targets = upload(np.array(target_ids, dtype=np.float64), logits.device).long()
            self._lines = Download(pack(log_softmax(logits), targets, num_top))

    def collect(self) -> list[TokenLogprob]:
        """The log-probability of each target with ``num_top`` alternatives. Waits for the device.

        Raises GenerationFailed if the model's output is not a distribution.
        """
        scored = []
        for line, token_id in zip(self._lines.tolist(), self._target_ids, strict=True):
            logprob = unpack(line, token_id, self._num_top)
            if logprob is None:
                raise GenerationFailed("the model's output for the prompt is not a distribution")
            scored.append(logprob)
        return scored
