"""Log-probabilities of sampled and prompt tokens, from the model's raw distribution."""

from __future__ import annotations

import math

import numpy as np
import torch

from core.contract.errors import GenerationFailed
from core.contract.messages import PromptLogprobs, SampledLogprob
from core.contract.params import MAX_TOP_LOGPROBS
from core.kernels.cpu.library import kernels
from core.kernels.cpu.sampling import logprob_lines
from core.system.pinned import Download, upload

FLOOR = -9999.0
"""Reported in place of every lower log-probability, so that no infinity leaves the engine."""

_WIDTH = MAX_TOP_LOGPROBS + 12
"""Candidates for the alternatives. It is the same for all requests, so that the alternatives of a
request do not depend on the batch. It is larger than any list of alternatives, so that equal
values at the end of the list are ordered by id too."""


def lines(logits: torch.Tensor, token_ids: torch.Tensor, num_top: int) -> torch.Tensor:
    """Return the report about each row, in one float64 tensor, for one transfer to the host.

    ``logits`` is [num_rows, vocab_size] of any float type and is not changed, ``token_ids`` int64
    [num_rows]. A row of the result is the natural-log probability of its token, then the best
    values, then their ids: [num_rows, 1 + 2 * num_top] (or fewer columns when the vocabulary is
    smaller). A token has the same float as sampled token and as alternative. Equal logits are in
    the order of ids. A row of NaN stands for one without a distribution.
    """
    library = kernels() if logits.device.type == "cpu" else None
    if library is not None:
        return logprob_lines(library, logits, token_ids, num_top)
    logprobs = logits.log_softmax(dim=1, dtype=torch.float32)
    own = logprobs.gather(1, token_ids[:, None])
    if num_top == 0:
        return own.double()
    values, ids = _best(logprobs, num_top)
    return torch.cat([own.double(), values.double(), ids.double()], dim=1)


def _best(logprobs: torch.Tensor, num_top: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ``num_top`` largest values of each row, descending, lower id first among equals.

    Returns values and token ids, both [num_rows, min(num_top, vocab_size)].
    """
    values, ids = logprobs.topk(min(_WIDTH, logprobs.shape[1]), dim=1)
    ids, order = ids.sort(dim=1)
    values, order = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values[:, :num_top], ids.gather(1, order)[:, :num_top]


def unpack(line: list[float], token_id: int, num_top: int) -> SampledLogprob | None:
    """Read one row of ``lines``, with ``num_top`` alternatives. None if the logits held NaN."""
    if math.isnan(line[0]):
        return None
    width = len(line) // 2
    num_top = min(num_top, width)
    top = zip(line[1 : 1 + num_top], line[1 + width : 1 + width + num_top], strict=True)
    return SampledLogprob(
        token_id=token_id,
        logprob=max(line[0], FLOOR),
        top=tuple((int(top_id), max(value, FLOOR)) for value, top_id in top),
    )


class PromptScores:
    """Log-probabilities of prompt tokens, computed on the device.

    ``logits`` is [num_targets, vocab_size] of any float dtype and is not changed: row ``i`` is
    the model's output at the position before ``target_ids[i]``. Needs float32 memory of twice the
    size of the logits, except with CPU kernels; long prompts come in chunks.
    """

    def __init__(self, logits: torch.Tensor, target_ids: list[int], num_top: int) -> None:
        self._target_ids = target_ids
        with torch.inference_mode():
            targets = upload(np.array(target_ids, dtype=np.float64), logits.device).long()
            self._lines = Download(lines(logits, targets, num_top))

    def collect(self) -> PromptLogprobs:
        """Wait for the device; return each target's log-probability and its alternatives.

        Raises GenerationFailed if the logits held NaN.
        """
        found = self._lines.numpy()
        if np.isnan(found[:, 0]).any():
            raise GenerationFailed("the model's output for the prompt is not a distribution")
        num_values = 1 + found.shape[1] // 2
        np.maximum(found[:, :num_values], FLOOR, out=found[:, :num_values])
        return PromptLogprobs(tuple(self._target_ids), found.tobytes())
