"""StepTime: how long a step of so many tokens is expected to take."""

from __future__ import annotations

from dataclasses import dataclass

AIM = 0.9
"""Part of the limit that a step should have as its ``max_seconds``. Something interrupts one step
in ten."""

NEWEST_WEIGHT = 1 / 2
"""Weight of the newest step in the means."""

MAX_GROWTH = 2.0
"""A step has at most this many times the tokens of the mean step with prompts: the cost is not
linear where a processor becomes busy, so a step much larger than those measured is not predicted.
The duration of a step after a late one counts at most as this many times the expected one."""

MAX_SURPRISE = 1.25
"""The duration of a step after one that was not late counts at most as this many times the expected
one. A single interrupted step says little of the next, and the chunks would be too small for many
steps."""

MAX_GROWTH_OF_DECODES = 1.25
"""MAX_GROWTH for steps without prompts. When a prompt comes, threads that read and
tokenize it interrupt the last steps before, and none is measured until it is computed."""

MAX_OVER_PROPORTION = 1.25
"""Part of a step's duration does not depend on its tokens, so the line may predict that more tokens
fit than in proportion to the mean step with prompts. At most this many times the tokens in
proportion are used: the line may be wrong."""

MAX_SLOWDOWN = 3.0
"""A step with prompts may last this many times a step of the same streams without prompts, if that
is longer than ``max_seconds``. So prompts get two thirds of the time beside slow streams: with
less, their steps have so few tokens that reading the weights takes most of the time, and a prompt
of a thousand tokens waits for many seconds."""

DECODES_PER_PROMPT_TOKEN = 4
"""Every so many streams of a step add a prompt token to it, however long steps last. A prompt token
usually costs no more than a token of a stream, so this adds about a quarter at most; without it,
short prompts behind many slow streams would wait for seconds."""

MAX_STEPS_SINCE = 32
"""Steps with prompts after which what the streams take alone is no longer known. To measure it
costs a step without prompts, about one hundredth of the time of the others."""

LEAST_STEPS = 8
"""Steps with prompts that must be left, for the streams to be measured again: short prompts, which
come one after the other, should not wait for it."""

NUM_FIRST = 2
"""Steps without prompts that are measured at first: a single one may have been interrupted."""


@dataclass(slots=True)
class _MeanStep:
    """Exponential means of the tokens and the duration of steps of one kind."""

    max_growth: float
    num_tokens: float = 0.0
    seconds: float = 0.0
    num_steps: int = 0
    was_late: bool = False  # the newest step took longer than expected

    def observe(self, num_tokens: float, seconds: float, weight: float = NEWEST_WEIGHT) -> None:
        self.num_steps += 1
        if self.num_steps == 1:
            self.num_tokens, self.seconds = num_tokens, seconds
            return
        expected = self.seconds * max(1.0, num_tokens / self.num_tokens)
        growth = self.max_growth if self.was_late else MAX_SURPRISE
        self.was_late = seconds > MAX_SURPRISE * expected
        seconds = min(seconds, growth * expected)
        self.num_tokens += weight * (num_tokens - self.num_tokens)
        self.seconds += weight * (seconds - self.seconds)


def whole_blocks(num_tokens: int, block_size: int) -> int:
    """Round what a step has time for up to the nearest block, if that adds a third at most.

    Chunks of several prompts end with a block, so they would be rounded down, and leave up to a
    third of the time of a step with two or three blocks unused.
    """
    nearest = (num_tokens + block_size // 2) // block_size * block_size
    return nearest if num_tokens < nearest <= 4 / 3 * num_tokens else num_tokens


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
        self._decode = _MeanStep(MAX_GROWTH_OF_DECODES)
        self._prefill = _MeanStep(MAX_GROWTH)
        self._num_since = 0  # steps with prompts since the last one without that was believed
        self._doubted: tuple[int, float] | None = None  # streams and seconds of one without, since

    def observe(
        self, num_tokens: int, num_sequences: int, seconds: float, attention: float = 0.0
    ) -> None:
        """Learn the duration of a step. Every sequence of it computed one token or more.

        ``attention`` is what the attention of its prompts costs, in tokens.
        """
        if num_tokens == num_sequences:
            self._observe_decodes(num_tokens, seconds)
        else:
            self._prefill.observe(num_tokens + attention, seconds)
            self._num_since += 1

    def _observe_decodes(self, num_tokens: int, seconds: float) -> None:
        """Learn the duration of a step without prompts.

        The first one after steps with prompts decides how long the next of those may take. If it
        is late it may have been interrupted, so it is doubted: the shorter one of it and of the
        next counts. If the next has more streams, the late one says nothing of it.
        """
        doubted, self._doubted = self._doubted, None
        if doubted is not None and num_tokens <= doubted[0]:
            seconds = min(seconds, doubted[1])
        elif self._num_since and self._is_late(num_tokens, seconds):
            self._doubted = num_tokens, seconds
            return
        is_news = self._num_since > 0 or seconds < self._decode.seconds
        self._decode.observe(num_tokens, seconds, 1.0 if is_news else NEWEST_WEIGHT)
        self._num_since = 0

    def _is_late(self, num_tokens: int, seconds: float) -> bool:
        """Whether a step without prompts took longer than expected; no first one did."""
        is_known = self._decode.num_steps > 0
        return is_known and seconds > MAX_SURPRISE * self._without_prompts(num_tokens)

    def must_measure(self, num_decodes: int, num_steps: float) -> bool:
        """Whether the next step has to be one of the ``num_decodes`` streams alone.

        Without it, steps with prompts may stay as short as they are: they get few tokens, of which
        the line says that they take most of the time. ``num_steps``: so many steps of what
        ``prompt_tokens`` allows are left of the prompts.
        """
        if not self._prefill.num_tokens:
            return False
        if self._decode.num_steps < NUM_FIRST:
            return True
        is_old = self._num_since >= MAX_STEPS_SINCE
        return num_steps >= LEAST_STEPS and (is_old or num_decodes >= 2 * self._decode.num_tokens)

    def prompt_tokens(self, num_decodes: int, least: int) -> int | None:
        """Rows of prompts in a step with ``num_decodes`` streams; None before the first step.

        A row is a token of a prompt, and more late in a prompt: see PromptRows.

        As many as are expected to fit into ``max_seconds``, or into the longer duration that
        MAX_SLOWDOWN allows, but at least one for every DECODES_PER_PROMPT_TOKEN streams, and at
        least two: a step with one prompt token counts as one without prompts, so its duration would
        not correct the mean that led to it. The first step with prompts has ``least``, and a step
        may have ``least`` more than those measured, however few fit in proportion.
        """
        if not self._prefill.num_tokens:
            return least if self._decode.num_tokens else None
        seconds = max(self._max_seconds, MAX_SLOWDOWN * self._without_prompts(num_decodes))
        fitting = int(self._fitting(seconds, spare=least) - num_decodes)
        return max(2, num_decodes // DECODES_PER_PROMPT_TOKEN, fitting)

    def _without_prompts(self, num_decodes: int) -> float:
        """Seconds of a step of so many streams: the mean of measured ones, or what the line says.

        While prompts wait, no step without prompts is measured, and the streams become more.
        """
        mean = self._prefill
        num_prompt_tokens = max(0.0, mean.num_tokens - num_decodes)
        return max(self._decode.seconds, mean.seconds - self._slope() * num_prompt_tokens)

    def _fitting(self, seconds: float, *, spare: float) -> float:
        """Tokens of a step that is expected to last so long.

        Up to ``spare`` tokens more than in the mean step are not limited by MAX_OVER_PROPORTION.
        """
        mean = self._prefill
        on_line = mean.num_tokens + (seconds - mean.seconds) / self._slope()
        in_proportion = mean.num_tokens * seconds / max(mean.seconds, 1e-9)
        believed = max(MAX_OVER_PROPORTION * in_proportion, mean.num_tokens + spare)
        return min(on_line, believed, MAX_GROWTH * mean.num_tokens)

    def _slope(self) -> float:
        """Seconds per token: that of the line through both mean steps, if there is one."""
        mean = self._prefill
        num_tokens = mean.num_tokens - self._decode.num_tokens
        seconds = mean.seconds - self._decode.seconds
        if self._decode.num_tokens and num_tokens > 0:
            return max(seconds, 1e-9) / num_tokens
        return max(mean.seconds, 1e-9) / mean.num_tokens
