"""translate_completion: a text completion request to a Job. Runs in a worker thread.

CompletionRenderer: text completions, streamed or whole. Both have the same shape.

The size of a request before it is translated: cheap enough for the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET

from core.contract.errors import InvalidRequest
from core.contract.messages import StepOutput, TokenLogprob
from core.contract.params import SamplingParams
from schemas.completions import Completion, CompletionChoice, CompletionRequest
from schemas.logprobs import CompletionLogprobs
from server.generation.job import Job, NewGrammars
from server.generation.model import ServedModel
from server.rendering.base import weight_of
from server.rendering.envelope import Envelope, EventRenderer, stop_reason
from server.rendering.logprobs import completion_logprobs
from server.rendering.sliced import SLICE, encoded_list
from server.translation.formats import output_format
from server.translation.params import answer_length, sampling_params
from server.translation.prompt_size import size_check
from server.translation.prompts import TokenizedPrompt, completion_prompts, truncate
from server.translation.shared_fields import (
    check_shared_fields,
    new_envelope,
    new_job,
    refuse_unsupported,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionOptions:
    """``num_best`` choices per prompt are returned, of those generated (``best_of``).

    ``echoes`` holds the text of each prompt if the response repeats it.
    """

    num_best: int
    echoes: Sequence[str] | None = None


class CompletionRenderer(EventRenderer):
    """See Renderer. Event loop only."""

    def __init__(self, envelope: Envelope, options: CompletionOptions) -> None:
        super().__init__(envelope, Completion)
        self._options = options
        self._begun: set[int] = set()

    def feed(self, index: int, output: StepOutput) -> bytes:
        """A chunk if there is anything new. The first contains the echoed prompt."""
        self._counter.count(index, output)
        is_first = index not in self._begun
        has_news = output.text or output.logprobs or output.finish_reason is not None
        has_ids = self._envelope.return_token_ids and output.token_ids
        has_echo = is_first and self._options.echoes is not None
        if not has_news and not has_ids and not has_echo:
            return b""
        self._begun.add(index)
        if self._only_text_differs and not is_first and output.finish_reason is None:
            return self._filled(
                index,
                output.text,
                lambda text: self._frame(
                    self._choice(
                        index,
                        index,
                        msgspec.structs.replace(output, text=text),
                        with_prompt=False,
                    )
                ),
            )
        return self._frame(
            self._choice(index, index, output, with_prompt=is_first),
            warnings=UNSET if output.finish_reason is None else self._envelope.shown_warnings,
        )

    def whole(self, outputs: Sequence[StepOutput]) -> bytes:
        """The JSON body, with the best choices of each prompt in order of rank."""
        usage = self._total_usage(outputs)
        num_candidates, num_best = self._envelope.num_choices, self._options.num_best
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
        is_first = index not in self._begun
        echo = 0 if self._options.echoes is None else len(self._prompt(index))
        ids = len(self._prompt(index)) if self._envelope.return_token_ids else 0
        return weight_of(output) + ((echo + ids) // 8 if is_first else 0)

    def _prompt(self, source: int) -> Sequence[int]:
        """The prompt of the engine's choice ``source``."""
        return self._envelope.prompts[source // self._envelope.num_choices]

    def _choice(
        self, index: int, source: int, output: StepOutput, *, with_prompt: bool
    ) -> CompletionChoice:
        """Choice ``index`` of the response, from the engine's choice ``source``."""
        prompt = source // self._envelope.num_choices
        prompt_ids = self._prompt(source)
        echo = "" if self._options.echoes is None else self._options.echoes[prompt]
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
        prompt: Iterable[TokenLogprob] = ()
        offsets: list[int] = []
        if with_prompt and self._options.echoes is not None:
            prompt = output.prompt_logprobs or ()
            offsets = self._prompt_offsets(prompt_ids)
        return completion_logprobs(
            [*prompt, *output.logprobs], self._name, num_top, offsets=offsets, offset=len(echo)
        )

    def _prompt_offsets(self, token_ids: Sequence[int]) -> list[int]:
        """Where each prompt token's text begins, in code points. Hidden tokens have no text."""
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


def translate_completion(request: CompletionRequest, model: ServedModel) -> Job:
    """Check the fields and tokenize the prompts. Raises InvalidRequest."""
    model.check_generates()
    _check_fields(request)
    prompts = _prompts(request, model)
    num_best = request.n or 1
    num_candidates = max(request.best_of or 1, num_best)
    new_grammars = NewGrammars(model.grammar_compiler)
    must_rank = num_candidates > num_best
    params = _params(request, model, prompts, new_grammars, must_rank=must_rank)
    envelope = new_envelope(
        request,
        model,
        id_prefix="cmpl-",
        prompts=[prompt.token_ids for prompt in prompts],
        num_choices=num_candidates,
        num_top=request.logprobs,
        new_grammars=new_grammars,
    )
    options = CompletionOptions(num_best=num_best, echoes=_echoes(request, model, prompts))
    renderer = CompletionRenderer(envelope, options)
    return new_job(request, model, envelope, params, renderer, new_grammars)


def _check_fields(request: CompletionRequest) -> None:
    """Checks that need no model."""
    check_shared_fields(request)
    if request.best_of is not None and request.best_of < (request.n or 1):
        raise InvalidRequest(
            f"best_of ({request.best_of}) is below n ({request.n or 1}).",
            param="best_of",
            code="invalid_parameter_combination",
        )
    if request.best_of is not None and request.best_of > 1 and request.stream:
        raise InvalidRequest(
            "best_of cannot be streamed.",
            param="best_of",
            code="invalid_parameter_combination",
        )
    refuse_unsupported(request)


def _prompts(request: CompletionRequest, model: ServedModel) -> list[TokenizedPrompt]:
    prompts = completion_prompts(
        request,
        model.tokenizer,
        check_size=size_check(request, model, param="prompt"),
        check_suffix=size_check(request, model, param="suffix"),
        most_tokens=model.settings.max_queued_prompt_tokens,
    )
    if request.truncate_prompt_tokens is None:
        return prompts
    wanted = DEFAULT_MAX_TOKENS if request.max_tokens is None else request.max_tokens
    wanted = 1 if wanted == -1 else wanted
    room = model.info.max_model_len - wanted
    return [TokenizedPrompt(truncate(p.token_ids, request, room=room)) for p in prompts]


def _params(
    request: CompletionRequest,
    model: ServedModel,
    prompts: list[TokenizedPrompt],
    new_grammars: NewGrammars,
    *,
    must_rank: bool,
) -> list[SamplingParams]:
    """The params of each prompt. They differ in ``max_tokens`` only."""
    grammar, format_param = output_format(request)
    if grammar is not None:
        new_grammars.note(grammar, param=format_param)
    is_unlimited = request.max_tokens == -1
    max_tokens = [
        answer_length(
            prompt.token_ids,
            None if is_unlimited else request.max_tokens,
            model.info,
            param="prompt",
            default=None if is_unlimited else DEFAULT_MAX_TOKENS,
            is_clamped=model.settings.clamp_max_tokens,
        )
        for prompt in prompts
    ]
    common = sampling_params(
        request,
        max_tokens=max_tokens[0],
        logprobs=0 if request.logprobs is None and must_rank else request.logprobs,
        echo_logprobs=request.logprobs if request.echo else None,
        info=model.info,
        tokenizer=model.tokenizer,
        grammar=grammar,
    )
    return [msgspec.structs.replace(common, max_tokens=most) for most in max_tokens]


def _echoes(
    request: CompletionRequest, model: ServedModel, prompts: list[TokenizedPrompt]
) -> list[str] | None:
    """The text of each prompt if the response repeats it. Given text is repeated verbatim."""
    if not request.echo:
        return None
    skip = request.skip_special_tokens is not False
    return [
        model.tokenizer.decode(prompt.token_ids, skip_special_tokens=skip)
        if prompt.text is None
        else prompt.text
        for prompt in prompts
    ]


def num_generations(request: CompletionRequest) -> int:
    """Choices of all prompts."""
    return _num_prompts(request) * max(request.best_of or 1, request.n or 1)


def _num_prompts(request: CompletionRequest) -> int:
    """One for a text or a list of token ids, else one for each element."""
    prompt = request.prompt
    if not isinstance(prompt, list) or not prompt or isinstance(prompt[0], int):
        return 1
    return len(prompt)
