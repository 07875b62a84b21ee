"""The three ways a row gets its token. Which one is a matter of the row's own parameters alone.

- best: the best token is taken. Besides temperature 0 these are the requests whose filters leave
  only the best token: top_k 1, min_p 1, top_p 0.
- free: the whole vocabulary takes part in the draw.
- ranked: min_p, top_k or top_p limit the draw.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch

from core.contract.params import SamplingParams
from core.sampling.best import argmax, topk
from core.sampling.draw import FAILED, UNRESOLVED, draw_from_all, draw_from_ranked
from core.sampling.rows import Rows
from core.sampling.stream import Stream
from core.sampling.upload import upload
from core.sequence import Sequence

_WIDENING = 32

MAX_TEMPERATURE = 1e30
"""The draw is uniform long before; more would overflow float32."""


def takes_best(params: SamplingParams) -> bool:
    """Whether nothing but the best token can be chosen."""
    return params.is_greedy or params.top_k == 1 or params.min_p >= 1.0 or params.top_p <= 0.0


def is_limited(params: SamplingParams, vocab_size: int) -> bool:
    """Whether min_p, top_k or top_p can exclude a token."""
    return params.min_p > 0.0 or 0 < params.top_k < vocab_size or params.top_p < 1.0


class Group(Protocol):
    """Rows of a batch that get their tokens in the same way."""

    rows: Rows

    def draw(self, logits: torch.Tensor) -> torch.Tensor:
        """Tokens of the group's rows, int64 [num_rows]; see ``draw`` for values below 0.

        ``logits`` is [batch_size, vocab_size] of the whole batch, after all edits.
        """
        ...


def best_tokens(logits: torch.Tensor) -> torch.Tensor:
    """The best token of each row, the lowest id on ties, or FAILED; one pass over the logits."""
    token = argmax(logits)
    value = logits.gather(1, token[:, None])[:, 0]
    return torch.where(value.abs() < torch.inf, token, FAILED)


class Best:
    """Takes the best token."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def draw(self, logits: torch.Tensor) -> torch.Tensor:
        """One pass over the rows' logits."""
        return best_tokens(self.rows.of(logits))


class Free:
    """Draws from the softmax at the row's temperature."""

    def __init__(self, rows: Rows, device: torch.device) -> None:
        self.rows = rows
        self._stream = Stream(rows.sequences)
        temperatures = np.array([row.params.temperature for row in rows.sequences])
        self._temperatures = (  # float32 [num_rows, 1]
            None
            if (temperatures == 1.0).all()
            else upload(temperatures.clip(max=MAX_TEMPERATURE), device).float()[:, None]
        )

    def draw(self, logits: torch.Tensor) -> torch.Tensor:
        """Two passes over the logits, three with a temperature other than 1."""
        own = self.rows.of(logits)
        if self._temperatures is not None:
            own.div_(self._temperatures)  # a copy, or a batch with no other rows
        return draw_from_all(own, self._stream.uniforms(logits.device))


class Ranked:
    """Draws from the best candidates of a row. Reads its tokens on the host."""

    def __init__(
        self, rows: Rows, num_candidates: int, vocab_size: int, device: torch.device
    ) -> None:
        self.rows = rows
        self._stream = Stream(rows.sequences)
        self._num_candidates = min(num_candidates, vocab_size)
        params = [sequence.params for sequence in rows.sequences]
        top_k = [min(p.top_k, vocab_size) or vocab_size for p in params]
        self._filters = upload(  # float64 [4, num_rows]: see draw_from_ranked
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
        # top_p is a share of what min_p and top_k leave over. If neither limits the row, that is
        # the mass of the whole vocabulary, which the candidates alone do not tell.
        unbounded = [
            row
            for row, p in enumerate(params)
            if p.min_p == 0.0 and top_k[row] == vocab_size > self._num_candidates
        ]
        self._unbounded = Rows.select(unbounded, rows.sequences, device) if unbounded else None

    def draw(self, logits: torch.Tensor) -> torch.Tensor:
        """Find the candidates; rows limited by top_p alone take one more softmax.

        A row whose draw falls outside the candidates is drawn again from more of them, and at
        last from the whole vocabulary.
        """
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
        return draw_from_ranked(
            values,
            ids,
            self._filters,
            self._total(own, ids),
            self._stream.uniforms(own.device),
            vocab_size=own.shape[1],
            is_bounded=self._is_bounded,
        )

    def _wider(self, sequences: list[Sequence], own: torch.Tensor) -> Ranked:
        """The same draw from more candidates."""
        vocab_size = own.shape[1]
        num_candidates = self._num_candidates * _WIDENING
        if num_candidates * 8 > vocab_size:  # sorting the whole vocabulary costs little more
            num_candidates = vocab_size
        return Ranked(Rows(sequences, None), num_candidates, vocab_size, own.device)

    def _total(self, own: torch.Tensor, ids: torch.Tensor) -> torch.Tensor | None:
        """Mass of the vocabulary in units of the best token's: 1 / softmax(best)."""
        if self._unbounded is None:
            return None
        temperature = self._unbounded.of(self._filters[0]).clamp(max=MAX_TEMPERATURE).float()
        weights = (self._unbounded.of(own) / temperature[:, None]).softmax(dim=1)
        best = weights.gather(1, self._unbounded.of(ids)[:, :1])[:, 0]
        total = torch.full((own.shape[0],), torch.inf, dtype=torch.float64, device=own.device)
        self._unbounded.put(total, best.double().reciprocal())
        return total
