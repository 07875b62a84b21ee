"""AnswerLogprobs: log-probabilities of the answer's tokens, without those of thinking."""

from __future__ import annotations

from collections.abc import Sequence

from core.contract.messages import StepOutput, TokenLogprob
from schemas.logprobs import TokenLogprob as WireLogprob
from server.render.envelope import Envelope
from server.render.logprobs import chat_logprobs, token_names


class AnswerLogprobs:
    """One response's. Give it every output in order."""

    def __init__(self, envelope: Envelope) -> None:
        self._num_top, self._tokenizer = envelope.num_top, envelope.tokenizer
        self._name = token_names(envelope.tokenizer, as_ids=envelope.tokens_as_ids)
        self._num_entries = 0

    def of_answer(self, output: StepOutput) -> Sequence[TokenLogprob]:
        """Those of the output that belong to the answer. Thinking comes before it."""
        if self._num_top is None:
            return ()
        num_thinking = max(output.num_thinking_tokens - self._num_entries, 0)
        self._num_entries += len(output.logprobs)
        return output.logprobs[num_thinking:]

    def wire(self, entries: Sequence[TokenLogprob]) -> list[WireLogprob]:
        """The entries in the form of the API; [] if the request wants none."""
        if self._num_top is None or not entries:
            return []
        return chat_logprobs(entries, self._tokenizer, self._name, self._num_top).content or []
