"""StepTime: how long a step of so many tokens is expected to take."""

from __future__ import annotations

from dataclasses import dataclass

NEWEST_WEIGHT = 1 / 2
MAX_GROWTH = 2.0
"""A step has at most this many times the tokens of the mean step with prompts: the cost is not
linear where a processor becomes busy, so a step much larger than those measured is not predicted.
A measured duration counts at most as this many times the expected one: one step that the system
interrupted changes little."""

MAX_DOUBT = 1.25
"""The line may promise more tokens than in proportion to the mean step with prompts, because a
step takes time without any. Believed is at most this many times the tokens in proportion."""

PATIENCE = 1.4
"""If not even the least chunk fits, a step may take this many times the longest duration, or that
of a step without prompts, if this is longer. So prompts get two sevenths of the time."""

DECODES_PER_PROMPT_TOKEN = 4
"""However long steps take, each so many streams leave a prompt token beside them, up to the least
chunk. A token of a prompt costs no more than one of a stream, so this adds at most a quarter;
without it, short prompts behind many slow streams would wait for seconds."""


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
    that grows with the context, is corrected where it matters. If the steps with prompts had no
    more tokens than the others, the duration is taken to be proportional to the tokens, until a
    step of another size corrects it.
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

    def prompt_tokens(self, num_decodes: int, least: int) -> int | None:
        """Tokens of prompts in a step with ``num_decodes`` streams; None before the first step.

        The step is expected to last ``max_seconds``. If fewer than ``least`` tokens fit, it may
        last longer, as PATIENCE says, for up to so many. The first step with prompts has ``least``.
        """
        if not self._prefill.num_tokens:
            return least if self._decode.num_tokens else None
        num_tokens = self._fitting(self._max_seconds, spare=least) - num_decodes
        if num_tokens >= least:
            return int(num_tokens)
        seconds = PATIENCE * max(self._max_seconds, self._decode.seconds)
        fitting = int(self._fitting(seconds) - num_decodes)
        return min(least, max(1, num_decodes // DECODES_PER_PROMPT_TOKEN, fitting))

    def _fitting(self, seconds: float, *, spare: float = 0.0) -> float:
        """Tokens of a step that is expected to last so long.

        MAX_DOUBT holds for what exceeds the mean step by more than ``spare``.
        """
        mean = self._prefill
        on_line = mean.num_tokens + (seconds - mean.seconds) / self._slope(mean)
        in_proportion = mean.num_tokens * seconds / max(mean.seconds, 1e-9)
        believed = max(MAX_DOUBT * in_proportion, mean.num_tokens + spare)
        return min(on_line, believed, MAX_GROWTH * mean.num_tokens)

    def _slope(self, mean: _MeanStep) -> float:
        """Seconds per token."""
        num_tokens = mean.num_tokens - self._decode.num_tokens
        seconds = mean.seconds - self._decode.seconds
        if self._decode.num_tokens and num_tokens > 0:
            return max(seconds, 1e-9) / num_tokens
        return max(mean.seconds, 1e-9) / mean.num_tokens
