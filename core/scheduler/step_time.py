"""StepTime: how long a step of so many tokens is expected to take."""

from __future__ import annotations

from dataclasses import dataclass

NEWEST_WEIGHT = 1 / 2
MAX_GROWTH = 2.0
"""A step has at most this many times the tokens of the mean step with prompts: the cost is not
linear where a processor becomes busy, so a step much larger than those measured is not predicted.
A measured duration counts at most as this many times the expected one: one step that the system
interrupted changes little."""


@dataclass(slots=True)
class _MeanStep:
    """Exponential means of the tokens and the duration of steps of one kind."""

    num_tokens: float = 0.0
    seconds: float = 0.0

    def observe(self, num_tokens: int, seconds: float) -> None:
        if not self.num_tokens:
            self.num_tokens, self.seconds = num_tokens, seconds
            return
        expected = self.seconds * max(1.0, num_tokens / self.num_tokens)
        seconds = min(seconds, MAX_GROWTH * expected)
        self.num_tokens += NEWEST_WEIGHT * (num_tokens - self.num_tokens)
        self.seconds += NEWEST_WEIGHT * (seconds - self.seconds)


class StepTime:
    """Fits ``seconds = a + b * tokens`` to the measured steps. Core thread only; no clock.

    The line goes through two points: the mean step without prompts and the mean step with prompts.
    The second follows the steps that the prediction leads to, so a cost that is not linear, or
    that grows with the context, is corrected where it matters. If the points do not determine a
    line of positive slope, the duration is taken to be proportional to the tokens, until a step
    of another size corrects it.
    """

    def __init__(self, max_seconds: float) -> None:
        """``max_seconds`` is the longest duration that a step should have."""
        self._max_seconds = max_seconds
        self._decode = _MeanStep()
        self._prefill = _MeanStep()

    def observe(self, num_tokens: int, num_sequences: int, seconds: float) -> None:
        """Learn the duration of a step. Every sequence of it computed one token or more."""
        step = self._decode if num_tokens == num_sequences else self._prefill
        step.observe(num_tokens, seconds)

    def max_tokens(self) -> int | None:
        """Tokens of a step that is expected to last ``max_seconds``; None before the first one."""
        mean = self._prefill if self._prefill.num_tokens else self._decode
        if not mean.num_tokens:
            return None
        num_tokens = mean.num_tokens + (self._max_seconds - mean.seconds) / self._slope(mean)
        return max(0, int(min(num_tokens, MAX_GROWTH * mean.num_tokens)))

    def _slope(self, mean: _MeanStep) -> float:
        """Seconds per token."""
        num_tokens = mean.num_tokens - self._decode.num_tokens
        seconds = mean.seconds - self._decode.seconds
        if self._decode.num_tokens and num_tokens > 0 and seconds > 0:
            return seconds / num_tokens
        return max(mean.seconds, 1e-9) / mean.num_tokens
