"""The common part of embeddings and scores: the model's facts, inputs and the renderer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from core.contract.info import PoolingInfo
from core.contract.messages import StepOutput
from core.contract.params import SamplingParams
from core.text.message_template import encode_shown, end_of_shown
from schemas.completions import CompletionRequest
from schemas.embeddings import EmbeddingRequest, InputUsage
from schemas.scores import RerankRequest, ScoreRequest
from server.generation.job import Job, NewGrammars
from server.generation.model import ServedModel
from server.http.errors import invalid, wrong_task
from server.rendering.base import Renderer
from server.translation.prompt_size import prompt_exceeds, size_check
from server.translation.prompts import empty_truncation

Vectors = npt.NDArray[np.float32]

NewResponse: TypeAlias = Callable[[Vectors, InputUsage], msgspec.Struct]
"""Makes the response of vectors [num_prompts, size]."""


def pooling_of(model: ServedModel) -> PoolingInfo:
    """The facts of a model that does not generate. Raises InvalidRequest for one that does."""
    if model.info.pooling is None:
        raise wrong_task("This model generates text. It makes no embeddings and scores nothing.")
    return model.info.pooling


def checked_size(text: str, model: ServedModel, truncate: int | None, *, param: str) -> str:
    """The part of a text to tokenize, in lower case if the model wants that.

    Raises ContextLengthExceeded, before tokenizing is costly.
    """
    if pooling_of(model).lowercases:
        text = text.lower()
    request = CompletionRequest(truncate_prompt_tokens=truncate, truncation_side="right")
    return text[size_check(request, model, param=param)(text)]


def text_ids(
    text: str, model: ServedModel, truncate: int | None, *, param: str, before: str = ""
) -> list[int]:
    """The ids of a text to embed, which begins with the prompt ``before``. Raises InvalidRequest.

    A chat template that shows the text shows the prompt as an instruction.
    """
    tokenizer, template = model.tokenizer, pooling_of(model).template
    if template is None:
        part = checked_size(before + text, model, truncate, param=param)
        ids = tokenizer.encode(part, add_special_tokens=True)
        return fitting(ids, model, truncate, param=param)
    part = checked_size(text, model, truncate, param=param)
    ids = encode_shown(tokenizer, template, (part,), before)
    end = partial(end_of_shown, tokenizer, template, 1, before)
    return fitting(ids, model, truncate, param=param, end=end)


def fitting(
    ids: list[int],
    model: ServedModel,
    truncate: int | None,
    *,
    param: str,
    end: Callable[[], list[int]] | None = None,
) -> list[int]:
    """The ids, or as many as ``truncate_prompt_tokens`` says. Raises InvalidRequest.

    The tokens that the tokenizer puts at the end of every text stay at the end, or those of
    ``end``. A prompt has one token at least: a model computes nothing of none.
    """
    if truncate == 0:
        raise empty_truncation()
    if not ids:
        raise invalid(param, f"{param} is a text without tokens.")
    most = model.info.max_model_len
    kept = most if truncate == -1 else len(ids) if truncate is None else truncate
    if min(kept, len(ids)) > most:
        raise prompt_exceeds(most, len(ids), param=param)
    if kept >= len(ids):
        return ids
    last = model.tokenizer.encode("", add_special_tokens=True) if end is None else end()
    num_last = 0
    while num_last < min(len(last), kept) and last[-num_last - 1] == ids[-num_last - 1]:
        num_last += 1
    return ids[: kept - num_last] + ids[len(ids) - num_last :]


@dataclass(frozen=True, slots=True)
class VectorRenderer(Renderer):
    """Renders vectors and scores, which are never streamed."""

    new_response: NewResponse

    def weight(self, _index: int, output: StepOutput) -> int:
        return 2 + len(output.vector) // 32

    def feed(self, _index: int, _output: StepOutput) -> bytes:
        raise AssertionError("vectors are not streamed")

    def whole(self, outputs: Sequence[StepOutput]) -> bytes:
        num_tokens = sum(output.num_prompt_tokens for output in outputs)
        usage = InputUsage(prompt_tokens=num_tokens, total_tokens=num_tokens)
        vectors = np.stack([np.frombuffer(output.vector, dtype="<f4") for output in outputs])
        return msgspec.json.encode(self.new_response(vectors, usage))


def vector_job(
    id_: str,
    prompts: Sequence[Sequence[int]],
    request: EmbeddingRequest | RerankRequest | ScoreRequest,
    model: ServedModel,
    new_response: NewResponse,
    second_text_starts: Sequence[int] = (),
) -> Job:
    """The job of prompts to which nothing is generated."""
    return Job(
        id=id_,
        prompts=prompts,
        params=[SamplingParams(max_tokens=0)] * len(prompts),
        priority=request.priority or 0,
        renderer=VectorRenderer(new_response),
        new_grammars=NewGrammars(model.grammar_compiler),
        second_text_starts=second_text_starts,
    )
