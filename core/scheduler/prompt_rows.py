"""PromptRows: what tokens of prompts cost, counted in rows."""

from __future__ import annotations

import math


class PromptRows:
    """A row is what a token costs that attends to nothing: its products with the weights.

    Attention to ``keys_per_row`` keys costs another one. So a token after 3,000 others may cost
    twice as much as the first.
    """

    def __init__(self, keys_per_row: float = math.inf) -> None:
        self._rows_per_key = 1 / keys_per_row

    def of_pairs(self, num_pairs: float) -> float:
        """What attention costs, for so many pairs of a token and one that it attends to."""
        return self._rows_per_key * num_pairs

    def of(self, start: int, num_tokens: int) -> int:
        """What ``num_tokens`` after the first ``start`` of a prompt cost, to the nearest row."""
        return num_tokens + round(self.of_pairs(num_tokens * (start + num_tokens / 2)))

    def fitting(self, start: int, rows: int) -> int:
        """The most tokens after the first ``start`` of a prompt that cost at most ``rows``."""
        rows = max(rows, 0)
        linear, square = 1 + self._rows_per_key * start, self._rows_per_key / 2
        found = int(2 * rows / (linear + math.sqrt(linear * linear + 4 * square * rows)))
        return found + (self.of(start, found + 1) <= rows)
