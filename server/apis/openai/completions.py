"""POST /v1/completions and /generate: translations to a Job, in a worker thread, and renderers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import msgspec
from msgspec import UNSET

from core.contract.messages import SampledLogprob, StepOutput
from schemas.completions import Completion, CompletionChoice, CompletionRequest
from schemas.generate import GenerateRequest, GenerateResponse
from schemas.logprobs import CompletionLogprobs
from server.apis.openai.events import EventRenderer, stop_reason
from server.generation.job import Job
from server.generation.model import ServedModel
from server.rendering.base import Envelope, Renderer
from server.rendering.logprobs import SLICE, completion_logprobs, encoded_list
from server.translation.prompts import TokenizedPrompt
from server.translation.text import text_job


class CompletionRenderer(EventRenderer):
    """Text completions. Streamed and whole they have the same shape."""

    def __init__(
        self, envelope: Envelope, *, num_best: int, echoes: Sequence[str] | None = None
    ) -> None:
        """``num_best`` choices per prompt are returned, of those generated (``best_of``).

        ``echoes`` holds the text of each prompt if the response repeats it.
        """
        super().__init__(envelope, Completion)
        self._num_best, self._echoes = num_best, echoes
        self._begun: set[int] = set()

    def feed(self, index: int, output: StepOutput) -> bytes:
        """A chunk if there is anything new. The first contains the echoed prompt."""
        self._counter.count(index, output)
        is_first = index not in self._begun
        has_news = output.text or output.logprobs or output.finish_reason is not None
        has_ids = self._envelope.return_token_ids and output.token_ids
        has_echo = is_first and self._echoes is not None
        if not has_news and not has_ids and not has_echo:
            return b""
        self._begun.add(index)
        if self._only_text_differs and not is_first and output.finish_reason is None:

            def frame_of(text: str) -> bytes:
                part = msgspec.structs.replace(output, text=text)
                return self._frame(self._choice(index, index, part, with_prompt=False))

            return self._filled(index, output.text, frame_of)
        return self._frame(
            self._choice(index, index, output, with_prompt=is_first),
            warnings=UNSET if output.finish_reason is None else self._envelope.shown_warnings,
        )

    def whole(self, outputs: Sequence[StepOutput]) -> bytes:
        """The JSON body, with the best choices of each prompt in order of rank."""
        usage = self._total_usage(outputs)
        num_candidates, num_best = self._envelope.num_choices, self._num_best
        chosen: list[int] = []
        for first in range(0, len(outputs), num_candidates):
            candidates = list(range(first, first + num_candidates))
            if num_best < num_candidates:
                candidates.sort(key=lambda i: -_mean_logprob(outputs[i]))
            chosen += candidates[:num_best]
        rendered = (
            self._choice(index, source, outputs[source], with_prompt=True)
            for index, source in enumerate(chosen)
        )
        choices = encoded_list(rendered, weight=SLICE)
        return msgspec.json.encode(
            self._new_chunk(choices=choices, usage=usage, warnings=self._envelope.shown_warnings)
        )

    def weight(self, index: int, output: StepOutput) -> int:
        num_copies = (self._echoes is not None) + self._envelope.return_token_ids
        prompt = () if index in self._begun else self._prompt(index)
        return super().weight(index, output) + num_copies * len(prompt) // 8

    def _prompt(self, source: int) -> Sequence[int]:
        """The prompt of the engine's choice ``source``."""
        return self._envelope.prompts[source // self._envelope.num_choices]

    def _choice(
        self, index: int, source: int, output: StepOutput, *, with_prompt: bool
    ) -> CompletionChoice:
        """Choice ``index`` of the response, from the engine's choice ``source``."""
        prompt = source // self._envelope.num_choices
        prompt_ids = self._prompt(source)
        echo = "" if self._echoes is None else self._echoes[prompt]
        return CompletionChoice(
            index=index,
            text=echo + output.text if with_prompt else output.text,
            logprobs=self._logprobs(prompt_ids, output, echo, with_prompt=with_prompt),
            finish_reason=output.finish_reason,
            stop_reason=stop_reason(output),
            token_ids=self._token_ids(output.token_ids),
            prompt_token_ids=self._token_ids(prompt_ids) if with_prompt else UNSET,
            prompt_logprobs=self._prompt_logprobs(output),
        )

    def _logprobs(
        self, prompt_ids: Sequence[int], output: StepOutput, echo: str, *, with_prompt: bool
    ) -> CompletionLogprobs | None:
        num_top = self._envelope.num_top
        if num_top is None:
            return None
        prompt: Iterable[SampledLogprob] = ()
        offsets: list[int] = []
        if with_prompt and self._echoes is not None:
            prompt = output.prompt_logprobs or ()
            offsets = self._prompt_offsets(prompt_ids)
        return completion_logprobs(
            [*prompt, *output.logprobs], self._name, num_top, offsets=offsets, offset=len(echo)
        )

    def _prompt_offsets(self, token_ids: Sequence[int]) -> list[int]:
        """The start of each prompt token's text, in code points. Hidden tokens have no text."""
        detokenizer = self._envelope.tokenizer.detokenizer((), skip_special_tokens=True)
        offsets, offset = [], 0
        for token_id in token_ids:
            offsets.append(offset)
            offset += len(detokenizer.feed(token_id))
        return offsets


def _mean_logprob(output: StepOutput) -> float:
    """Rank of a candidate."""
    values = [entry.logprob for entry in output.logprobs if entry.logprob is not None]
    return sum(values) / len(values) if values else float("-inf")


DEFAULT_MAX_TOKENS = 16
"""OpenAI's default for ``max_tokens``."""

DEFAULT_MAX_NEW_TOKENS = 64
"""The default of ``/generate``."""


def translate_completion(request: CompletionRequest, model: ServedModel) -> Job:
    """The job of a text completion. Raises InvalidRequest."""

    def new_renderer(envelope: Envelope, prompts: Sequence[TokenizedPrompt]) -> CompletionRenderer:
        echoes = [text_of(prompt) for prompt in prompts] if request.echo else None
        return CompletionRenderer(envelope, num_best=request.n or 1, echoes=echoes)

    def text_of(prompt: TokenizedPrompt) -> str:
        skip = request.skip_special_tokens is not False
        if prompt.text is not None:  # given text is repeated verbatim
            return prompt.text
        return model.tokenizer.decode(prompt.token_ids, skip_special_tokens=skip)

    return text_job(
        request,
        model,
        id_prefix="cmpl-",
        new_renderer=new_renderer,
        default_length=DEFAULT_MAX_TOKENS,
    )


def num_generations(request: CompletionRequest) -> int:
    """Choices of all prompts: one for a text or a list of token ids, else one for each element."""
    prompt = request.prompt
    is_one = not isinstance(prompt, list) or not prompt or isinstance(prompt[0], int)
    return (1 if is_one else len(prompt or ())) * max(request.best_of or 1, request.n or 1)


class TextRenderer(Renderer):
    """Streams raw UTF-8; the whole response is ``{"text": prompt + completion}``.

    Raw text cannot express an error: the connection is cut, as the text is incomplete.
    """

    media_type: ClassVar[str] = "text/plain; charset=utf-8"

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt

    def feed(self, _index: int, output: StepOutput) -> bytes:
        return output.text.encode()

    def whole(self, outputs: Sequence[StepOutput]) -> bytes:
        return msgspec.json.encode(GenerateResponse(text=self._prompt + outputs[0].text))


def translate_generate(request: GenerateRequest, model: ServedModel) -> Job:
    """The job of a text to continue. Raises InvalidRequest."""
    completion = CompletionRequest(
        prompt=request.prompt,
        max_tokens=request.max_new_tokens,
        temperature=0.0 if request.do_sample is False else request.temperature,
        top_k=request.top_k,
        top_p=request.top_p,
        ignore_eos=request.stop_on_eos is False,
        stream=request.stream,
        priority=request.priority,
    )
    return text_job(
        completion,
        model,
        id_prefix="gen-",
        new_renderer=lambda _envelope, _prompts: TextRenderer(request.prompt),
        default_length=DEFAULT_MAX_NEW_TOKENS,
    )
