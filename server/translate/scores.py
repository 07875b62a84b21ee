"""Pairs of texts to a Job: POST /v1/rerank and /v1/score. Runs in a worker thread.

A cross-encoder reads both texts of a pair together. With an embedding model the score is the
cosine of the angle between the two vectors.
"""

from __future__ import annotations

from uuid import uuid4

import numpy as np

from core.contract.errors import InvalidRequest
from core.contract.info import PoolingInfo
from schemas.limits import MAX_PROMPTS
from schemas.scores import RerankRequest, ScoreRequest
from server.admission.checkpoint import checkpoint
from server.job import Job
from server.render.scores import RankingRenderer, ScoreRenderer
from server.render.vectors import ToScores, Vectors
from server.served_model import ServedModel
from server.translate.pooling import checked_size, fitting, pooling_job, pooling_of

Pair = tuple[str, str]


def translate_rerank(request: RerankRequest, model: ServedModel) -> Job:
    """One pair for each document. Raises InvalidRequest."""
    pooling = pooling_of(model)
    documents = [one if isinstance(one, str) else one.text for one in request.documents]
    renderer = RankingRenderer(
        id=f"rerank-{uuid4().hex}",
        model=model.name,
        to_scores=_to_scores(pooling, len(documents), is_one_to_many=True),
        documents=documents,
        top_n=request.top_n or len(documents),
        shows_documents=request.return_documents is not False,
    )
    pairs = [(request.query, document) for document in documents]
    return _job(pairs, request, model, pooling, renderer, "documents", is_one_to_many=True)


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
    is_one_to_many = len(first) == 1
    pairs = [(first[0] if is_one_to_many else first[i], text) for i, text in enumerate(second)]
    renderer = ScoreRenderer(
        id=f"score-{uuid4().hex}",
        model=model.name,
        to_scores=_to_scores(pooling, len(pairs), is_one_to_many=is_one_to_many),
    )
    return _job(pairs, request, model, pooling, renderer, "text_2", is_one_to_many=is_one_to_many)


def _job(
    pairs: list[Pair],
    request: RerankRequest | ScoreRequest,
    model: ServedModel,
    pooling: PoolingInfo,
    renderer: RankingRenderer | ScoreRenderer,
    param: str,
    *,
    is_one_to_many: bool,
) -> Job:
    truncate, most = request.truncate_prompt_tokens, model.info.max_model_len
    starts: list[int] = []
    prompts: list[list[int]] = []
    if pooling.task == "score":
        for first, second in pairs:
            checkpoint()
            texts = [checked_size(text, model, truncate, param=param) for text in (first, second)]
            ids, start = model.tokenizer.encode_pair(texts[0], texts[1])
            prompts.append(fitting(ids, model, truncate, param=param))
            starts.append(min(start, most))
    else:
        firsts = [pairs[0][0]] if is_one_to_many else [first for first, _ in pairs]
        for text in [*firsts, *(second for _, second in pairs)]:
            checkpoint()
            text = checked_size(text.strip(), model, truncate, param=param)  # noqa: PLW2901
            ids = model.tokenizer.encode(text, add_special_tokens=True)
            prompts.append(fitting(ids, model, truncate, param=param))
    if len(prompts) > MAX_PROMPTS + 1:
        raise InvalidRequest(
            f"There are {len(prompts)} texts; the limit is {MAX_PROMPTS + 1}.",
            param=param,
            code="array_above_max_length",
        )
    return pooling_job(
        prompts,
        renderer,
        id_prefix="pair",
        priority=request.priority,
        second_text_starts=starts,
    )


def _to_scores(pooling: PoolingInfo, num_pairs: int, *, is_one_to_many: bool) -> ToScores:
    def own(vectors: Vectors) -> list[float]:
        scores: list[float] = vectors[:, 0].tolist()
        return scores

    def cosines(vectors: Vectors) -> list[float]:
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        num_first = 1 if is_one_to_many else num_pairs
        scores: list[float] = (unit[:num_first] * unit[num_first:]).sum(axis=1).tolist()
        return scores

    return own if pooling.task == "score" else cosines
