"""Generation: the output of one sequence, from sampled tokens to StepOutputs.

The engine has one for each sequence. It appends a step's tokens, gives them to the detokenizer and
the stop matcher, finds the end, and reports text and tokens at the stream interval.
"""

from __future__ import annotations

from core.contract.messages import (
    FinishReason,
    PromptLogprobs,
    SampledLogprob,
    StepOutput,
    whole_prompt,
)
from core.observe.histogram import Histogram
from core.sampling.result import SequenceResult
from core.state.sequence import Sequence
from core.text.output import NO_STOPS, OutputAssembler
from core.text.tokenizer import Tokenizer


class Generation:
    """Appends the tokens of one sequence, detects its end and reports at its stream interval.

    ``finish_reason`` is set in the step that ends the sequence. Core thread only.
    """

    __slots__ = (
        "_num_reported_tokens",
        "_prompt_logprobs",
        "_text",
        "finish_reason",
        "sequence",
        "stop_reason",
    )

    def __init__(self, sequence: Sequence, tokenizer: Tokenizer) -> None:
        params = sequence.params
        self.sequence = sequence
        self.finish_reason: FinishReason | None = None
        self.stop_reason: str | int | None = None
        self._text = OutputAssembler(
            tokenizer.detokenizer(
                sequence.request.prompt_token_ids,
                skip_special_tokens=params.skip_special_tokens,
            ),
            stop=params.stop,
            include_stop=params.include_stop_str_in_output,
            thinking=params.thinking,
            special_stops=tokenizer.special_ids_of(params.stop) if params.stop else NO_STOPS,
        )
        sequence.must_end_thinking = self._text.must_end_thinking
        self._num_reported_tokens = 0
        self._prompt_logprobs: list[PromptLogprobs] | None = None
        if params.prompt_logprobs is not None:
            self._prompt_logprobs = []
        if params.max_tokens == 0 and self._prompt_logprobs is None:
            self.finish_reason = "length"

    def advance(
        self, result: SequenceResult, eos_token_ids: frozenset[int], *, num_computed_tokens: int
    ) -> None:
        """Append the result of a step after which ``num_computed_tokens`` are computed."""
        if result.prompt_logprobs:
            self._take_prompt_logprobs(result.prompt_logprobs, num_computed_tokens)
        sampled = result.sampled
        if sampled is None:
            return
        if self.sequence.params.max_tokens == 0:
            self.finish_reason = "length"
            return
        logprobs = sampled.logprobs
        for i, token_id in enumerate(sampled.token_ids):
            self._append(token_id, logprobs[i] if logprobs else None, eos_token_ids)
            if self.finish_reason is not None:
                self._end_text()
                return

    def _end_text(self) -> None:
        """Release held-back text; an incomplete character at the end may match a stop string."""
        self._text.finish()
        if self.finish_reason == "length" and self._text.matched is not None:
            self.finish_reason, self.stop_reason = "stop", self._text.matched

    def report(self) -> StepOutput | None:
        """The output to send now, or None.

        The first token and the end are reported at once, other tokens at the stream interval.
        """
        sequence, num_reported = self.sequence, self._num_reported_tokens
        token_ids, num_prompt_tokens = sequence.token_ids, sequence.num_prompt_tokens
        num_tokens = len(token_ids) - num_prompt_tokens
        num_new, is_first = num_tokens - num_reported, num_reported == 0
        if self.finish_reason is None:
            interval = sequence.request.stream_interval
            if interval == 0 or num_new == 0 or (num_new < interval and not is_first):
                return None
            if not is_first and not self._text.has_text:
                return None
        text, thinking, logprobs = self._text.take()
        self._num_reported_tokens = num_tokens
        scores, self._prompt_logprobs = self._prompt_logprobs, None
        has_thinking = sequence.params.thinking is not None
        num_thinking_tokens = self._text.num_thinking_tokens if has_thinking else 0
        output = StepOutput(
            request_id=sequence.request.request_id,
            text=text,
            thinking=thinking,
            token_ids=tuple(token_ids[num_prompt_tokens + num_reported :]),
            logprobs=logprobs,
            prompt_logprobs=(
                None if scores is None else whole_prompt(sequence.token_ids[0], scores)
            ),
            num_prompt_tokens=num_prompt_tokens,
            num_cached_tokens=sequence.num_cached_tokens,
            num_output_tokens=num_tokens,
            num_thinking_tokens=num_thinking_tokens,
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
        )
        return output if self.finish_reason is None else output.after(sequence.work())

    def _append(
        self, token_id: int, logprob: SampledLogprob | None, eos_token_ids: frozenset[int]
    ) -> None:
        sequence = self.sequence
        params, token_ids = sequence.params, sequence.token_ids
        token_ids.append(token_id)
        num_tokens = len(token_ids) - sequence.num_prompt_tokens
        if num_tokens == 1:
            sequence.history.first_token()
        may_stop = num_tokens >= params.min_tokens
        may_end = may_stop and not (params.stop and self._text.stops_at(token_id))
        if may_end and token_id in params.stop_token_ids:
            self.finish_reason, self.stop_reason = "stop", token_id
            if params.include_stop_str_in_output:
                self._text.feed(token_id, logprob)
            else:
                self._text.feed_end(logprob)
            return
        if may_end and token_id in eos_token_ids and not params.ignore_eos:
            self.finish_reason = "stop"
            self._text.feed_end(logprob)
            return
        self._text.feed(token_id, logprob, check_stops=may_stop)
        if params.thinking is not None:
            sequence.must_end_thinking = self._text.must_end_thinking
        if params.stop and self._text.matched is not None:
            self.finish_reason, self.stop_reason = "stop", self._text.matched
        elif num_tokens >= params.max_tokens:
            self.finish_reason = "length"

    def _take_prompt_logprobs(self, scores: PromptLogprobs, num_computed_tokens: int) -> None:
        """Append the scores of a prompt chunk, without those that a recomputed chunk repeats."""
        if self._prompt_logprobs is not None:
            # the last entry of a chunk is that of the token after it
            end = min(num_computed_tokens + 1, self.sequence.num_prompt_tokens)
            num_known = 1 + sum(map(len, self._prompt_logprobs)) - (end - len(scores))
            if num_known < len(scores):
                self._prompt_logprobs.append(scores.after(num_known))


class TokenCounter:
    """Counts tokens, and the time from each sampled token to the next of its sequence.

    Sequences that are in every step get their tokens together, so their gaps are equal: they count
    as one value that occurred many times. Only a sequence that missed a step (preempted, mask late,
    repeated alone) is observed by itself. So sums and counts are exact, and a token costs a
    comparison. Core thread only.
    """

    def __init__(self, gaps: Histogram) -> None:
        """``gaps`` are in seconds."""
        self.num_prompt_tokens = 0
        """Of the prompts that were computed."""
        self.num_cached_tokens = 0
        """Those of them that came from the prefix cache."""
        self.num_output_tokens = 0
        self._gaps = gaps
        self._previous = self._now = 0
        self._num_together = 0

    def begin(self, now: int) -> None:
        """The tokens that are counted until ``end`` came at ``now``, in the clock's nanoseconds."""
        self._previous, self._now = self._now, now
        self._num_together = 0

    def got_tokens(self, sequence: Sequence, num_tokens: int) -> None:
        """A sequence got its next tokens. They come together: the gaps between them are 0."""
        last, sequence.last_token_at = sequence.last_token_at, self._now
        self.num_output_tokens += num_tokens
        if num_tokens > 1:
            self._gaps.observe(0.0, num_tokens - 1)
        if last == self._previous:
            self._num_together += 1
        elif last is None:
            self.prompt_computed(sequence)
        else:
            self._gaps.observe((self._now - last) / 1e9)

    def prompt_computed(self, sequence: Sequence) -> None:
        """The prompt of a sequence was computed; its first token may follow."""
        self.num_prompt_tokens += sequence.num_prompt_tokens
        self.num_cached_tokens += sequence.num_cached_tokens

    def end(self) -> None:
        """The step is over: count the gaps that were equal."""
        if self._num_together:
            self._gaps.observe((self._now - self._previous) / 1e9, self._num_together)
