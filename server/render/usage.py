"""UsageCounter: token counts of one response."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.contract.messages import StepOutput
from schemas.usage import CompletionTokensDetails, PromptTokensDetails, Usage


@dataclass(slots=True)
class UsageCounter:
    """Sums tokens over the choices. Choice ``p * num_choices + j`` belongs to prompt ``p``.

    Each prompt and its cached tokens count once, however many choices it has.
    """

    num_choices: int
    num_prompt_tokens: int
    _outputs: dict[int, StepOutput] = field(default_factory=dict)

    def count(self, index: int, output: StepOutput) -> None:
        """Take a choice's next output. Its counts are totals so far."""
        self._outputs[index] = output

    def usage(self) -> Usage:
        """The counts so far."""
        outputs = self._outputs.values()
        firsts = [o for i, o in self._outputs.items() if i % self.num_choices == 0]
        num_output_tokens = sum(output.num_output_tokens for output in outputs)
        return Usage(
            prompt_tokens=self.num_prompt_tokens,
            completion_tokens=num_output_tokens,
            total_tokens=self.num_prompt_tokens + num_output_tokens,
            prompt_tokens_details=PromptTokensDetails(
                cached_tokens=sum(output.num_cached_tokens for output in firsts)
            ),
            completion_tokens_details=CompletionTokensDetails(
                reasoning_tokens=sum(output.num_thinking_tokens for output in outputs)
            ),
        )
