"""UsageCounter: token counts of one response."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from core.contract.messages import StepOutput
from schemas.usage import CompletionTokensDetails, PromptTokensDetails, Usage
from server.render.thinking import ThinkingCounter


@dataclass(slots=True)
class UsageCounter:
    """Sums tokens over the choices. Choice ``p * num_choices + j`` belongs to prompt ``p``.

    Each prompt and its cached tokens count once, however many choices it has.
    """

    num_choices: int
    num_prompt_tokens: int
    new_thinking_counter: Callable[[], ThinkingCounter] | None = None
    _outputs: dict[int, StepOutput] = field(default_factory=dict)
    _thinking: dict[int, ThinkingCounter] = field(default_factory=dict)

    def count(self, index: int, output: StepOutput) -> None:
        """Take a choice's next output. Its counts are totals so far."""
        self._outputs[index] = output
        if self.new_thinking_counter is not None:
            if index not in self._thinking:
                self._thinking[index] = self.new_thinking_counter()
            self._thinking[index].feed(output)

    def usage(self) -> Usage:
        """The counts so far."""
        firsts = [o for i, o in self._outputs.items() if i % self.num_choices == 0]
        num_output_tokens = sum(output.num_output_tokens for output in self._outputs.values())
        return Usage(
            prompt_tokens=self.num_prompt_tokens,
            completion_tokens=num_output_tokens,
            total_tokens=self.num_prompt_tokens + num_output_tokens,
            prompt_tokens_details=PromptTokensDetails(
                cached_tokens=sum(output.num_cached_tokens for output in firsts)
            ),
            completion_tokens_details=CompletionTokensDetails(
                reasoning_tokens=sum(counter.count for counter in self._thinking.values())
            ),
        )
