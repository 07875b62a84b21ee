"""Text completions: chunks of a stream, or one object. Both have the same shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from core.contract.messages import EngineRequest, StepOutput, TokenLogprob
from core.text.tokenizer import Tokenizer
from schemas.completions import Completion, CompletionChoice
from schemas.logprobs import CompletionLogprobs
from server.render.base import EventRenderer, Head, UsageCounter
from server.render.logprobs import TokenName, completion_logprobs, prompt_logprobs


@dataclass(frozen=True, slots=True)
class CompletionFormat:
    """What the request asked to see.

    ``num_choices`` is n for each prompt, of ``num_candidates`` generated (``best_of``).
    ``num_top`` is None where no log-probabilities were asked for. ``echoes`` holds the text of
    each prompt if it is to be repeated.
    """

    num_choices: int
    num_candidates: int
    num_top: int | None = None
    num_prompt_top: int | None = None
    echoes: Sequence[str] | None = None
    include_usage: bool = False
    continuous_usage: bool = False
    return_token_ids: bool = False


class CompletionRenderer(EventRenderer):
    """See StreamRenderer and WholeRenderer. Event loop only."""

    def __init__(
        self,
        head: Head,
        wanted: CompletionFormat,
        requests: Sequence[EngineRequest],
        tokenizer: Tokenizer,
        name: TokenName,
    ) -> None:
        super().__init__(
            head.of(Completion),
            UsageCounter.of(requests, wanted.num_candidates),
            include_usage=wanted.include_usage,
            continuous=wanted.continuous_usage,
        )
        self._format = wanted
        self._requests = requests
        self._tokenizer = tokenizer
        self._name = name
        self._begun: set[int] = set()
        self._only_text_differs = not (
            wanted.num_top is not None
            or wanted.num_prompt_top is not None
            or wanted.return_token_ids
            or self._continuous
        )

    def begin(self) -> bytes:
        """Nothing: completions have no role chunk."""
        return b""

    def feed(self, index: int, output: StepOutput) -> bytes:
        """A chunk if there is anything new; the prompt, if echoed, goes with the first."""
        self._counter.count(index, output)
        wanted, is_first = self._format, index not in self._begun
        has_news = output.text or output.logprobs or output.finish_reason is not None
        has_ids = wanted.return_token_ids and output.token_ids
        if not has_news and not has_ids and not (is_first and wanted.echoes is not None):
            return b""
        self._begun.add(index)
        if self._only_text_differs and not is_first and output.finish_reason is None:
            return self._filled(
                index,
                output.text,
                lambda text: self._frame(
                    self._choice(index, index, replace(output, text=text), with_prompt=False)
                ),
            )
        return self._frame(self._choice(index, index, output, with_prompt=is_first))

    def whole(self, outputs: Sequence[StepOutput]) -> bytes:
        """The whole object, with the best choices of each prompt in order of rank."""
        for index, output in enumerate(outputs):
            self._counter.count(index, output)
        wanted = self._format
        chosen: list[int] = []
        for first in range(0, len(outputs), wanted.num_candidates):
            candidates = list(range(first, first + wanted.num_candidates))
            if wanted.num_choices < wanted.num_candidates:
                candidates.sort(key=lambda i: -_mean_logprob(outputs[i]))
            chosen += candidates[: wanted.num_choices]
        choices = [
            self._choice(index, source, outputs[source], with_prompt=True)
            for index, source in enumerate(chosen)
        ]
        return msgspec.json.encode(self._new_chunk(choices=choices, usage=self._counter.usage()))

    def _choice(
        self, index: int, source: int, output: StepOutput, *, with_prompt: bool
    ) -> CompletionChoice:
        """Choice ``index`` of the answer, from request ``source`` of the engine."""
        wanted, request = self._format, self._requests[source]
        echo = "" if wanted.echoes is None else wanted.echoes[source // wanted.num_candidates]
        return CompletionChoice(
            index=index,
            text=echo + output.text if with_prompt else output.text,
            logprobs=self._logprobs(request, output, echo, with_prompt=with_prompt),
            finish_reason=output.finish_reason,
            stop_reason=UNSET if output.stop_reason is None else output.stop_reason,
            token_ids=list(output.token_ids) if wanted.return_token_ids else UNSET,
            prompt_token_ids=list(request.prompt_token_ids)
            if wanted.return_token_ids and with_prompt
            else UNSET,
            prompt_logprobs=UNSET
            if wanted.num_prompt_top is None
            else prompt_logprobs(
                output.prompt_logprobs or (), self._tokenizer, wanted.num_prompt_top
            ),
        )

    def _logprobs(
        self, request: EngineRequest, output: StepOutput, echo: str, *, with_prompt: bool
    ) -> CompletionLogprobs | None:
        if self._format.num_top is None:
            return None
        prompt: Sequence[TokenLogprob] = ()
        offsets: list[int] = []
        if with_prompt and self._format.echoes is not None:
            prompt = output.prompt_logprobs or ()
            offsets = self._prompt_offsets(request.prompt_token_ids)
        return completion_logprobs(
            [*prompt, *output.logprobs],
            self._name,
            self._format.num_top,
            offsets=offsets,
            offset=len(echo),
        )

    def _prompt_offsets(self, token_ids: Sequence[int]) -> list[int]:
        """Where each prompt token's text begins, in code points; hidden tokens add nothing."""
        detokenizer = self._tokenizer.detokenizer((), skip_special_tokens=True)
        offsets, offset = [], 0
        for token_id in token_ids:
            offsets.append(offset)
            offset += len(detokenizer.feed(token_id))
        return offsets


def _mean_logprob(output: StepOutput) -> float:
    """Rank of a candidate: mean log-probability of its tokens."""
    values = [entry.logprob for entry in output.logprobs if entry.logprob is not None]
    return sum(values) / len(values) if values else float("-inf")
