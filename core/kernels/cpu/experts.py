"""Sort the tokens of a mixture by expert, and sum the experts' outputs per token."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.kernels.cpu.bindings import Kernels


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which rows of a product belong to which expert and token."""

    kernels: Kernels
    num_tokens: int
    ends: torch.Tensor  # int64 [num_experts]: where the rows of an expert end
    sources: torch.Tensor  # int64 [num_tokens * k]: the token of each row
    places: torch.Tensor  # int64 [num_tokens, k]: the row of each choice, or -1

    def sum(self, rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Return ``sum_k weights[t, k] * rows[places[t, k]]`` in the order of k, ``[tokens, n]``.

        ``rows`` is contiguous float32 ``[num_tokens * k, n]``, ``weights`` has the shape of
        ``places``. The order makes a token's result independent of its batch.
        """
        assert len(rows) == self.places.numel() == weights.numel(), (rows.shape, weights.shape)
        weights = weights.float().contiguous()
        y = torch.empty(self.num_tokens, rows.shape[1])
        self.kernels.experts_sum(
            *(rows.data_ptr(), self.places.data_ptr(), weights.data_ptr()),
            *(self.num_tokens, self.places.shape[1], rows.shape[1], y.data_ptr()),
        )
        return y


def assign(kernels: Kernels, chosen: torch.Tensor, num_experts: int) -> Assignment:
    """Sort by expert. ``chosen`` is ``[num_tokens, k]``; other numbers than experts' are left out.

    The rows that are left out come last, with token 0 as their source.
    """
    chosen = chosen.to(torch.int64).contiguous()
    num_tokens, per_token = chosen.shape
    ends = torch.empty(num_experts, dtype=torch.int64)
    sources = torch.empty(chosen.numel(), dtype=torch.int64)
    places = torch.empty_like(chosen)
    kernels.experts_sort(
        *(chosen.data_ptr(), num_tokens, per_token, num_experts),
        *(ends.data_ptr(), sources.data_ptr(), places.data_ptr()),
    )
    return Assignment(kernels, num_tokens, ends, sources, places)
