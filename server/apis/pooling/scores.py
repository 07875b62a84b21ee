"""Pairs of texts to a Job: POST /v1/rerank and /v1/score. Runs in a worker thread.

A cross-encoder reads both texts of a pair together. With an embedding model the score is the
cosine of the angle between the two vectors.

Renderers of scores: POST /v1/rerank and /v1/score.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

import numpy as np
from msgspec import UNSET

from core.contract.errors import InvalidRequest
from core.contract.info import MessageTemplate, PoolingInfo
from core.text.message_template import encode_shown, end_of_shown
from schemas.embeddings import InputUsage
from schemas.limits import MAX_PROMPTS
from schemas.scores import RankedDocument, Ranking, RerankRequest, Score, ScoreList, ScoreRequest
from server.admission.pools import checkpoint
from server.apis.pooling.job import checked_size, fitting, pooling_job, pooling_of, text_ids
from server.generation.job import Job
from server.generation.model import ServedModel
from server.rendering.vectors import ToScores, Vectors, WholeOnly


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingRenderer(WholeOnly):
    """See Renderer. Shows the ``top_n`` best of ``documents``, with their texts or without."""

    id: str
    model: str
    to_scores: ToScores
    documents: Sequence[str]
    top_n: int
    shows_documents: bool

    def _response(self, vectors: Vectors, usage: InputUsage) -> Ranking:
        scores = self.to_scores(vectors)
        best = sorted(range(len(scores)), key=lambda i: -scores[i])[: self.top_n]
        results = [
            RankedDocument(
                index=i,
                relevance_score=scores[i],
                document={"text": self.documents[i]} if self.shows_documents else UNSET,
            )
            for i in best
        ]
        return Ranking(id=self.id, model=self.model, results=results, usage=usage)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRenderer(WholeOnly):
    """See Renderer."""

    id: str
    model: str
    to_scores: ToScores

    def _response(self, vectors: Vectors, usage: InputUsage) -> ScoreList:
        data = [Score(index=i, score=score) for i, score in enumerate(self.to_scores(vectors))]
        return ScoreList(
            id=self.id, created=int(time.time()), model=self.model, data=data, usage=usage
        )


Texts = tuple[str, list[str]]
"""A field of the request, and its texts."""


def translate_rerank(request: RerankRequest, model: ServedModel) -> Job:
    """One pair for each document. Raises InvalidRequest."""
    pooling = pooling_of(model)
    documents = [one if isinstance(one, str) else one.text for one in request.documents]
    renderer = RankingRenderer(
        id=f"rerank-{uuid4().hex}",
        model=model.name,
        to_scores=_to_scores(pooling, num_first=1),
        documents=documents,
        top_n=request.top_n or len(documents),
        shows_documents=request.return_documents is not False,
    )
    texts = ("query", [request.query]), ("documents", documents)
    return _job(*texts, request, model, pooling, renderer)


def translate_score(request: ScoreRequest, model: ServedModel) -> Job:
    """One pair for each score. Raises InvalidRequest."""
    pooling = pooling_of(model)
    first = [request.text_1] if isinstance(request.text_1, str) else request.text_1
    second = [request.text_2] if isinstance(request.text_2, str) else request.text_2
    if len(first) not in (1, len(second)):
        raise InvalidRequest(
            f"text_1 has {len(first)} texts and text_2 {len(second)}: it must be one, or as many.",
            param="text_1",
            code="invalid_value",
        )
    renderer = ScoreRenderer(
        id=f"score-{uuid4().hex}",
        model=model.name,
        to_scores=_to_scores(pooling, num_first=len(first)),
    )
    return _job(("text_1", first), ("text_2", second), request, model, pooling, renderer)


def _job(
    first: Texts,
    second: Texts,
    request: RerankRequest | ScoreRequest,
    model: ServedModel,
    pooling: PoolingInfo,
    renderer: RankingRenderer | ScoreRenderer,
) -> Job:
    truncate = request.truncate_prompt_tokens
    starts: list[int] = []
    instruction = _instruction(request, pooling)
    if pooling.task == "embed":
        prompts = _single_texts(first, second, model, truncate)
    elif pooling.template is not None:
        prompts = _shown_pairs(first, second, model, truncate, pooling.template, instruction)
    else:
        first = first[0], [instruction + text for text in first[1]]
        prompts, starts = _pairs(first, second, model, truncate)
    return pooling_job(
        prompts,
        renderer,
        response_id=renderer.id,
        priority=request.priority,
        second_text_starts=starts,
    )


def _instruction(request: RerankRequest | ScoreRequest, pooling: PoolingInfo) -> str:
    """The request's, else the model's own, which a pair of texts begins with; empty if none.

    Raises InvalidRequest.
    """
    template = pooling.template if pooling.task == "score" else None
    takes = template is not None and template.takes_instruction
    if request.instruction is not None and not takes:
        raise InvalidRequest(
            "This model's pairs have no instruction: its chat template shows none.",
            param="instruction",
            code="unsupported_parameter",
        )
    if request.instruction is not None:
        return request.instruction
    own = pooling.prompts.get(pooling.default_prompt or "", "")
    return own if takes or template is None else ""


def _shown_pairs(
    first: Texts,
    second: Texts,
    model: ServedModel,
    truncate: int | None,
    template: MessageTemplate,
    instruction: str,
) -> list[list[int]]:
    """The ids of each pair, as the chat template shows it."""
    tokenizer = model.tokenizer
    prompts: list[list[int]] = []
    checked_size(instruction, model, None, param="instruction")

    def end() -> list[int]:
        return end_of_shown(tokenizer, template, 2, instruction)

    for i, text in enumerate(second[1]):
        checkpoint()
        if i < len(first[1]):
            param = _param(first, i)
            part = checked_size(first[1][i], model, truncate, param=param)
            num_tokens = len(encode_shown(tokenizer, template, (part, ""), instruction))
            num_copies = len(second[1]) if len(first[1]) == 1 else 1
            _check_copies(num_tokens, num_copies, model, param)
        param = _param(second, i)
        pair = part, checked_size(text, model, truncate, param=param)
        ids = encode_shown(tokenizer, template, pair, instruction)
        prompts.append(fitting(ids, model, truncate, param=param, end=end))
    return prompts


def _pairs(
    first: Texts, second: Texts, model: ServedModel, truncate: int | None
) -> tuple[list[list[int]], list[int]]:
    """The ids of each pair, and where its second text starts.

    The first text of all pairs is tokenized once.
    """
    prompts: list[list[int]] = []
    starts: list[int] = []
    for i, text in enumerate(second[1]):
        checkpoint()
        if i < len(first[1]):
            param = _param(first, i)
            part = checked_size(first[1][i], model, truncate, param=param)
            beginning = model.tokenizer.first_of_pairs(part)
            num_copies = len(second[1]) if len(first[1]) == 1 else 1
            _check_copies(len(beginning), num_copies, model, param)
        param = _param(second, i)
        ids, start = beginning.with_second(checked_size(text, model, truncate, param=param))
        prompts.append(fitting(ids, model, truncate, param=param))
        starts.append(min(start, model.info.max_model_len))
    return prompts, starts


def _check_copies(num_tokens: int, num_copies: int, model: ServedModel, param: str) -> None:
    """Refuse a text whose copies have more tokens than all prompts may have."""
    most = model.settings.max_queued_prompt_tokens
    if num_tokens * num_copies > most:
        raise InvalidRequest(
            f"{param} has {num_tokens} tokens in each of {num_copies} pairs; the server takes at "
            f"most {most} together.",
            param=param,
            code="invalid_value",
        )


def _single_texts(
    first: Texts, second: Texts, model: ServedModel, truncate: int | None
) -> list[list[int]]:
    """The ids of each text, the first ones first."""
    num_texts = len(first[1]) + len(second[1])
    if num_texts > MAX_PROMPTS + 1:
        raise InvalidRequest(
            f"There are {num_texts} texts; the limit is {MAX_PROMPTS + 1}.",
            param=second[0],
            code="array_above_max_length",
        )
    prompts: list[list[int]] = []
    for texts in (first, second):
        for i, text in enumerate(texts[1]):
            checkpoint()
            param = _param(texts, i)
            prompts.append(text_ids(text, model, truncate, param=param))
    return prompts


def _param(texts: Texts, index: int) -> str:
    """The place of a text in the request."""
    return texts[0] if len(texts[1]) == 1 else f"{texts[0]}[{index}]"


def _to_scores(pooling: PoolingInfo, *, num_first: int) -> ToScores:
    """From ``vectors``, [num_prompts, size], to a score for each pair.

    A cross-encoder's vector is the score of a pair. An embedding model's are those of
    ``_single_texts``: ``num_first`` first texts, one for all of the others or one for each.
    """

    def own(vectors: Vectors) -> list[float]:
        scores: list[float] = vectors[:, 0].tolist()
        return scores

    def cosines(vectors: Vectors) -> list[float]:
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        scores: list[float] = (unit[:num_first] * unit[num_first:]).sum(axis=1).tolist()
        return scores

    return own if pooling.task == "score" else cosines
