"""Plain text, for the ancestor's ``POST /generate``."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from core.contract.messages import StepOutput
from schemas.generate import GenerateResponse


class TextRenderer:
    """See StreamRenderer and WholeRenderer: raw UTF-8, or ``{"text": prompt + completion}``."""

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt

    def begin(self) -> bytes:
        """Nothing."""
        return b""

    def feed(self, _index: int, output: StepOutput) -> bytes:
        """The new text."""
        return output.text.encode()

    def end(self) -> bytes:
        """Nothing."""
        return b""

    def error(self, _message: str) -> None:
        """Raw text cannot say it; the connection is cut, so that nobody takes it for the end."""
        return

    def whole(self, outputs: Sequence[StepOutput]) -> bytes:
        """The JSON body."""
        return msgspec.json.encode(GenerateResponse(text=self._prompt + outputs[0].text))
