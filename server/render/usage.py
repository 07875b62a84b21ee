"""UsageCounter: token counts of one response."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.contract.messages import StepOutput
from schemas.usage import CompletionTokensDetails, PromptTokensDetails, Usage


@dataclass(slots=True)
class UsageCounter:
    """Sums tokens over the choices. Choice ``p * num_choices + j`` belongs to prompt ``p``.

    Each prompt and its cached tokens count once, however many choices it has. Both calls take the
    same time for any number of choices.
    """

    num_choices: int
    num_prompt_tokens: int
    _last: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    _num_output_tokens: int = 0
    _num_thinking_tokens: int = 0
    _num_cached_tokens: int = 0

    def count(self, index: int, output: StepOutput) -> None:
        """Take a choice's next output. Its counts are totals so far; an error has none."""
        if output.error is not None:
            return
        cached = output.num_cached_tokens if index % self.num_choices == 0 else 0
        counts = output.num_output_tokens, output.num_thinking_tokens, cached
        last = self._last.get(index, (0, 0, 0))
        self._last[index] = counts
        self._num_output_tokens += counts[0] - last[0]
        self._num_thinking_tokens += counts[1] - last[1]
        self._num_cached_tokens += counts[2] - last[2]

    def usage(self) -> Usage:
        """The counts so far."""
        return Usage(
            prompt_tokens=self.num_prompt_tokens,
            completion_tokens=self._num_output_tokens,
            total_tokens=self.num_prompt_tokens + self._num_output_tokens,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=self._num_cached_tokens),
            completion_tokens_details=CompletionTokensDetails(
                reasoning_tokens=self._num_thinking_tokens
            ),
        )
