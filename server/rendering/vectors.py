"""WholeOnly: the base of renderers of vectors and scores, which are never streamed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import msgspec
import numpy as np
import numpy.typing as npt

from core.contract.messages import StepOutput
from schemas.embeddings import InputUsage

Vectors = npt.NDArray[np.float32]


class WholeOnly(ABC):
    """See Renderer; ``feed`` is never called."""

    media_type: ClassVar[str] = "application/json"
    keep_alive: ClassVar[bytes] = b""

    def weight(self, _index: int, output: StepOutput) -> int:
        return 2 + len(output.vector) // 32

    def begin(self) -> bytes:
        return b""

    def feed(self, _index: int, _output: StepOutput) -> bytes:
        return b""

    def end(self) -> bytes:
        return b""

    def error(self, _message: str, _cause: Exception | None = None) -> None:
        return

    def whole(self, outputs: Sequence[StepOutput]) -> bytes:
        """The response's body."""
        num_tokens = sum(output.num_prompt_tokens for output in outputs)
        usage = InputUsage(prompt_tokens=num_tokens, total_tokens=num_tokens)
        vectors = np.stack([np.frombuffer(output.vector, dtype="<f4") for output in outputs])
        return msgspec.json.encode(self._response(vectors, usage))

    @abstractmethod
    def _response(self, vectors: Vectors, usage: InputUsage) -> msgspec.Struct:
        """The response of vectors [num_inputs, size]."""


ToScores = Callable[[Vectors], list[float]]
"""From the engine's vectors to one score for each pair."""
