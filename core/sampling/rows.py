"""Rows of a batch, and the four ways in which a group of rows gets its tokens.

- GreedyRows: the best token. Besides temperature 0 these are the rows whose filters leave only
  the best token: top_k 1, min_p 1, top_p 0.
- UnfilteredRows: a draw from the whole vocabulary.
- FilteredRows: a draw limited by min_p, top_k or top_p.
- FusedRows: all of these in one kernel, where the device has one.

The group of a row depends only on the row's own parameters.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np
import torch

from core.contract.params import SamplingParams
from core.pinned import upload
from core.sampling.best import topk
from core.sampling.draw import (
    UNRESOLVED,
    RowDraw,
    draw_filtered,
    draw_unfiltered,
    greedy_tokens,
)
from core.sampling.random import RandomStream
from core.sequence import Sequence

_MAX_TEMPERATURE = 1e30
"""The draw is uniform well below it; higher temperatures overflow float32."""

_MIN_TEMPERATURE = 1e-30
"""The draw is greedy well above it; lower temperatures are 0 in float32."""

_WIDENING = 32
"""Factor by which the number of candidates grows when they do not suffice."""


def takes_best(params: SamplingParams) -> bool:
    """Whether only the best token can be chosen."""
    return params.is_greedy or params.top_k == 1 or params.min_p >= 1.0 or params.top_p <= 0.0


def filters_tokens(params: SamplingParams, vocab_size: int) -> bool:
    """Whether min_p, top_k or top_p can exclude a token."""
    return params.min_p > 0.0 or 0 < params.top_k < vocab_size or params.top_p < 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a batch. ``index`` is int64 [num_rows], None for all rows."""

    sequences: list[Sequence]
    index: torch.Tensor | None

    @classmethod
    def select(cls, rows: list[int], sequences: list[Sequence], device: torch.device) -> Rows:
        """Make the rows ``rows``, ascending, of the batch ``sequences``."""
        if len(rows) == len(sequences):
            return cls(sequences, None)
        index = upload(np.array(rows, dtype=np.float64), device).long()
        return cls([sequences[row] for row in rows], index)

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return these rows of ``tensor``: a copy, or ``tensor`` itself for all rows."""
        return tensor if self.index is None else tensor.index_select(0, self.index)

    def put(self, target: torch.Tensor, values: torch.Tensor) -> None:
        """Write ``values`` to these rows of ``target``."""
        if self.index is None:
            target.copy_(values)
        else:
            target.index_copy_(0, self.index, values)


class RowGroup(Protocol):
    """Rows of a batch that get their tokens in the same way."""

    rows: Rows

    def draw(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the tokens of the group, int64 [num_rows], FAILED where there is none.

        ``logits`` is [batch_size, vocab_size] of the whole batch, after all edits. It may be
        changed in these rows.
        """
        ...


class GreedyRows:
    """Takes the best token in one pass over the logits."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def draw(self, logits: torch.Tensor) -> torch.Tensor:
        return greedy_tokens(self.rows.of(logits))


class UnfilteredRows:
    """Draws from the softmax at the row's temperature."""

    def __init__(self, rows: Rows, device: torch.device) -> None:
        self.rows = rows
        self._stream = RandomStream(rows.sequences)
        temperatures = np.array([sequence.params.temperature for sequence in rows.sequences])
        self._temperatures = (  # float32 [num_rows, 1]
            None
            if (temperatures == 1.0).all()
            else upload(temperatures.clip(max=_MAX_TEMPERATURE), device).float()[:, None]
        )

    def draw(self, logits: torch.Tensor) -> torch.Tensor:
        own = self.rows.of(logits)
        if self._temperatures is not None:
            own.div_(self._temperatures)
        return draw_unfiltered(own, self._stream.uniforms(logits.device))


class FilteredRows:
    """Draws from the best candidates of a row. Reads its tokens on the host.

    A row whose draw falls outside the candidates is drawn again from more of them, and finally
    from the whole vocabulary.
    """

    def __init__(
        self, rows: Rows, num_candidates: int, vocab_size: int, device: torch.device
    ) -> None:
        self.rows = rows
        self._stream = RandomStream(rows.sequences)
        self._num_candidates = min(num_candidates, vocab_size)
        params = [sequence.params for sequence in rows.sequences]
        top_k = [min(p.top_k, vocab_size) or vocab_size for p in params]
        self._filters = upload(  # float64 [4, num_rows]: see draw_filtered
            np.array(
                [
                    [p.temperature for p in params],
                    [p.min_p for p in params],
                    top_k,
                    [p.top_p for p in params],
                ]
            ),
            device,
        )
        self._is_bounded = max(top_k) <= self._num_candidates
        # top_p is a share of the mass that min_p and top_k leave over. Without either this is
        # the mass of the whole vocabulary, which the candidates alone do not give.
        unbounded = [
            row
            for row, p in enumerate(params)
            if p.min_p == 0.0 and top_k[row] == vocab_size > self._num_candidates
        ]
        self._unbounded = Rows.select(unbounded, rows.sequences, device) if unbounded else None

    def draw(self, logits: torch.Tensor) -> torch.Tensor:
        own = self.rows.of(logits)
        tokens = self._draw(own)
        unresolved = [row for row, token in enumerate(tokens.tolist()) if token == UNRESOLVED]
        if unresolved:
            rows = Rows.select(unresolved, self.rows.sequences, own.device)
            rows.put(tokens, self._wider(rows.sequences, own).draw(rows.of(own)))
        return tokens

    def _draw(self, own: torch.Tensor) -> torch.Tensor:
        if self._num_candidates < own.shape[1]:
            values, ids = topk(own, self._num_candidates)
        else:
            values, ids = own.sort(dim=1, descending=True, stable=True)
        return draw_filtered(
            values,
            ids,
            self._filters,
            self._total(own, ids),
            self._stream.uniforms(own.device),
            vocab_size=own.shape[1],
            is_bounded=self._is_bounded,
        )

    def _wider(self, sequences: list[Sequence], own: torch.Tensor) -> FilteredRows:
        """Return the same draw from more candidates."""
        vocab_size = own.shape[1]
        num_candidates = self._num_candidates * _WIDENING
        if num_candidates * 8 > vocab_size:  # sorting the whole vocabulary costs little more
            num_candidates = vocab_size
        return FilteredRows(Rows(sequences, None), num_candidates, vocab_size, own.device)

    def _total(self, own: torch.Tensor, ids: torch.Tensor) -> torch.Tensor | None:
        """Return the mass of the vocabulary in units of the best token's: 1 / softmax(best)."""
        if self._unbounded is None:
            return None
        temperature = self._unbounded.of(self._filters[0]).clamp(max=_MAX_TEMPERATURE).float()
        weights = (self._unbounded.of(own) / temperature[:, None]).softmax(dim=1)
        best = weights.gather(1, self._unbounded.of(ids)[:, :1])[:, 0]
        total = torch.full((own.shape[0],), torch.inf, dtype=torch.float64, device=own.device)
        self._unbounded.put(total, best.double().reciprocal())
        return total


class FusedRows:
    """Draws all rows of a batch in one kernel, greedy ones too. Nothing is read on the host."""

    def __init__(self, rows: Rows, draw: RowDraw, *, vocab_size: int, device: torch.device) -> None:
        self.rows = rows
        self._draw = draw
        self._stream = RandomStream(rows.sequences)
        filters = [_filters(sequence.params, vocab_size) for sequence in rows.sequences]
        self._filters = upload(np.array(filters, dtype=np.float64).T.copy(), device)

    def draw(self, logits: torch.Tensor) -> torch.Tensor:
        return self._draw(self.rows.of(logits), self._filters, self._stream.bits(logits.device))


def _filters(params: SamplingParams, vocab_size: int) -> tuple[float, float, float, float]:
    """Return temperature (0: greedy), min_p, top_k and top_p in the form that RowDraw takes."""
    if takes_best(params):
        return 0.0, 0.0, vocab_size, 1.0
    temperature = min(max(params.temperature, _MIN_TEMPERATURE), _MAX_TEMPERATURE)
    return temperature, params.min_p, min(params.top_k, vocab_size) or vocab_size, params.top_p
