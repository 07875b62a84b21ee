"""TextRenderer: responses of ``POST /generate``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from core.contract.messages import StepOutput
from schemas.generate import GenerateResponse
from server.render.base import weight_of


class TextRenderer:
    """See Renderer. Streams raw UTF-8; the whole response is ``{"text": prompt + completion}``."""

    media_type: ClassVar[str] = "text/plain; charset=utf-8"
    keep_alive: ClassVar[bytes] = b""

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt

    def weight(self, _index: int, output: StepOutput) -> int:
        return weight_of(output)

    def begin(self) -> bytes:
        return b""

    def feed(self, _index: int, output: StepOutput) -> bytes:
        return output.text.encode()

    def end(self) -> bytes:
        return b""

    def error(self, _message: str, _cause: Exception | None = None) -> None:
        """Raw text cannot express an error. The connection is cut: the text is incomplete."""
        return

    def whole(self, outputs: Sequence[StepOutput]) -> bytes:
        return msgspec.json.encode(GenerateResponse(text=self._prompt + outputs[0].text))
