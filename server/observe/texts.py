"""Texts: prompt and answer of a request, for an operator who wants them kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from core.contract.messages import StepOutput

if TYPE_CHECKING:  # `roseinfer route` has the same front, and no tokenizer
    from core.text.tokenizer import Tokenizer

BETWEEN = "\n\n"
"""Between the texts of several prompts or choices."""


class Texts:
    """Collects the texts of one request."""

    def __init__(self) -> None:
        self._prompts: list[str] = []
        self._choices: dict[int, list[str]] = {}

    @property
    def prompt(self) -> str:
        """The prompts as the model saw them."""
        return BETWEEN.join(self._prompts)

    @property
    def text(self) -> str:
        """What was generated, by choice; thinking stands before the text after it."""
        return BETWEEN.join("".join(self._choices[index]) for index in sorted(self._choices))

    def take_prompts(self, prompts: Sequence[Sequence[int]], tokenizer: Tokenizer) -> None:
        """Decode the prompts. It takes long; worker threads only."""
        self._prompts = [tokenizer.decode(ids, skip_special_tokens=False) for ids in prompts]

    def take(self, index: int, output: StepOutput) -> None:
        """Add an output of choice ``index``."""
        self._choices.setdefault(index, []).append(output.thinking + output.text)
