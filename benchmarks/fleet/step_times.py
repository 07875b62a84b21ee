"""StepTimes: how long a step of a replica takes, by what it computes."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PiecewiseLinear:
    """Seconds by tokens, linear between knots. Knots rise.

    It is constant before the first knot; the last piece goes on after the last one.
    """

    tokens: tuple[float, ...]
    seconds: tuple[float, ...]

    def at(self, num_tokens: float) -> float:
        tokens, seconds = self.tokens, self.seconds
        if len(tokens) == 1 or num_tokens <= tokens[0]:
            return seconds[0]
        i = min(bisect_right(tokens, num_tokens), len(tokens) - 1)
        slope = (seconds[i] - seconds[i - 1]) / (tokens[i] - tokens[i - 1])
        return seconds[i - 1] + slope * (num_tokens - tokens[i - 1])


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The time of everything but attention, by the step's tokens, and the time of attention.

    ``streams`` is for steps without prompts, which may be replayed as CUDA graphs, ``prompts`` for
    steps with prompts and any streams beside them. ``per_context`` is seconds for each token that a
    stream attends to, ``per_pair`` for each pair of a prompt's token and one that it attends to.
    """

    streams: PiecewiseLinear
    prompts: PiecewiseLinear
    per_context: float = 0.0
    per_pair: float = 0.0

    def of_step(self, num_streams: int, num_prompt_tokens: int, context: int, pairs: int) -> float:
        """Seconds of a step. ``context`` is the sum over streams, ``pairs`` that over prompts."""
        rest = self.prompts if num_prompt_tokens else self.streams
        attention = self.per_context * context + self.per_pair * pairs
        return rest.at(num_streams + num_prompt_tokens) + attention

    def of_run(self, num_steps: int, num_streams: int, context: int) -> float:
        """Seconds of so many steps of the same streams. ``context`` is that of the first step.

        Every step adds a token to the context of each stream.
        """
        growth = num_streams * num_steps * (num_steps - 1) // 2
        each = self.streams.at(num_streams) + self.per_context * context
        return num_steps * each + self.per_context * growth

    def steps_in(self, seconds: float, most: int, num_streams: int, context: int) -> int:
        """The fewest steps of a run that last at least so long: 1 to ``most``."""
        low, high = 1, most
        while low < high:
            middle = (low + high) // 2
            if self.of_run(middle, num_streams, context) < seconds:
                low = middle + 1
            else:
                high = middle
        return low


def pairs_of(start: int, end: int) -> int:
    """Pairs of the tokens ``start`` to ``end - 1`` of a prompt and what each attends to."""
    return (end * (end + 1) - start * (start + 1)) // 2
