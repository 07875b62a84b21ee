"""POST /v1/rerank and /v1/score: pairs of texts to a Job, in a worker thread, and their responses.

A cross-encoder reads both texts of a pair together. With an embedding model the score is the
cosine of the angle between the two vectors.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from uuid import uuid4

import numpy as np
from msgspec import UNSET

from core.contract.errors import InvalidRequest
from core.contract.info import PoolingInfo
from core.text.message_template import encode_shown, end_of_shown
from schemas.embeddings import InputUsage
from schemas.limits import MAX_PROMPTS
from schemas.scores import RankedDocument, Ranking, RerankRequest, Score, ScoreList, ScoreRequest
from server.apis.pooling.job import (
    Vectors,
    checked_size,
    fitting,
    pooling_of,
    text_ids,
    vector_job,
)
from server.generation.job import Job
from server.generation.model import ServedModel
from server.http.errors import invalid, unsupported
from server.workers.pools import checkpoint


class GivenTexts(NamedTuple):
    """A field of the request, and its texts."""

    field: str
    texts: list[str]

    def param(self, index: int) -> str:
        """The place of a text in the request."""
        return self.field if len(self.texts) == 1 else f"{self.field}[{index}]"


def translate_rerank(request: RerankRequest, model: ServedModel) -> Job:
    """One pair for each document. Raises InvalidRequest."""
    documents = [one if isinstance(one, str) else one.text for one in request.documents]
    top_n, shows_documents = request.top_n, request.return_documents is not False
    id_ = f"rerank-{uuid4().hex}"

    def new_response(scores: list[float], usage: InputUsage) -> Ranking:
        best = sorted(range(len(scores)), key=lambda i: -scores[i])[: top_n or len(scores)]
        results = [
            RankedDocument(
                index=i,
                relevance_score=scores[i],
                document={"text": documents[i]} if shows_documents else UNSET,
            )
            for i in best
        ]
        return Ranking(id=id_, model=model.name, results=results, usage=usage)

    query = GivenTexts("query", [request.query])
    return _job(id_, query, GivenTexts("documents", documents), request, model, new_response)


def translate_score(request: ScoreRequest, model: ServedModel) -> Job:
    """One pair for each score. Raises InvalidRequest."""
    pooling_of(model)  # a model that generates is refused before the texts are compared
    first = [request.text_1] if isinstance(request.text_1, str) else request.text_1
    second = [request.text_2] if isinstance(request.text_2, str) else request.text_2
    if len(first) not in (1, len(second)):
        raise invalid(
            "text_1",
            f"text_1 has {len(first)} texts and text_2 {len(second)}: it must be one, or as many.",
        )
    id_ = f"score-{uuid4().hex}"

    def new_response(scores: list[float], usage: InputUsage) -> ScoreList:
        data = [Score(index=i, score=score) for i, score in enumerate(scores)]
        created = int(time.time())
        return ScoreList(id=id_, created=created, model=model.name, data=data, usage=usage)

    given = GivenTexts("text_1", first), GivenTexts("text_2", second)
    return _job(id_, *given, request, model, new_response)


def _job(
    id_: str,
    first: GivenTexts,
    second: GivenTexts,
    request: RerankRequest | ScoreRequest,
    model: ServedModel,
    new_response: Callable[[list[float], InputUsage], Ranking | ScoreList],
) -> Job:
    """The job of the pairs. ``new_response`` gets a score for each."""
    pooling, truncate = pooling_of(model), request.truncate_prompt_tokens
    instruction = _instruction(request, pooling)
    starts: list[int] = []
    if pooling.task == "embed":
        prompts = _single_texts(first, second, model, truncate)
    else:
        prompts, starts = _pairs(first, second, model, truncate, instruction)
    num_first = len(first.texts) if pooling.task == "embed" else None

    def response_of_scores(vectors: Vectors, usage: InputUsage) -> Ranking | ScoreList:
        return new_response(_scores(vectors, num_first), usage)

    return vector_job(id_, prompts, request, model, response_of_scores, starts)


def _scores(vectors: Vectors, num_first: int | None) -> list[float]:
    """A score for each pair, of vectors [num_prompts, size].

    ``num_first`` is None for a cross-encoder. Vectors of an embedding model are those of
    ``_single_texts``: ``num_first`` first texts, one for all of the others or one for each.
    """
    if num_first is None:
        found = vectors[:, 0]
    else:
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        found = (unit[:num_first] * unit[num_first:]).sum(axis=1)
    scores: list[float] = found.tolist()
    return scores


def _instruction(request: RerankRequest | ScoreRequest, pooling: PoolingInfo) -> str:
    """The request's, else the model's own, which a pair of texts begins with; empty if none.

    Raises InvalidRequest.
    """
    template = pooling.template if pooling.task == "score" else None
    takes = template is not None and template.takes_instruction
    if request.instruction is not None and not takes:
        raise unsupported(
            "instruction", "This model's pairs have no instruction: its chat template shows none."
        )
    if request.instruction is not None:
        return request.instruction
    own = pooling.prompts.get(pooling.default_prompt or "", "")
    return own if takes or template is None else ""


def _pairs(
    first: GivenTexts,
    second: GivenTexts,
    model: ServedModel,
    truncate: int | None,
    instruction: str,
) -> tuple[list[list[int]], list[int]]:
    """The ids of each pair, and where its second text starts unless a template shows the pair.

    Without a template the instruction begins the first text, which is tokenized once for all pairs.
    """
    tokenizer, template, end = model.tokenizer, pooling_of(model).template, None
    most = model.settings.max_queued_prompt_tokens  # of all prompts together
    prompts: list[list[int]] = []
    starts: list[int] = []
    if template is None:
        first = GivenTexts(first.field, [instruction + text for text in first.texts])
    else:
        checked_size(instruction, model, None, param="instruction")
        end = partial(end_of_shown, tokenizer, template, 2, instruction)
    for i, text in enumerate(second.texts):
        checkpoint()
        if i < len(first.texts):
            part = checked_size(first.texts[i], model, truncate, param=first.param(i))
            if template is None:
                beginning = tokenizer.first_of_pairs(part)
                num_tokens = len(beginning)
            else:
                num_tokens = len(encode_shown(tokenizer, template, (part, ""), instruction))
            num_copies = len(second.texts) if len(first.texts) == 1 else 1
            if num_tokens * num_copies > most:
                param = first.param(i)
                raise invalid(
                    param,
                    f"{param} has {num_tokens} tokens in each of {num_copies} pairs; the server "
                    f"takes at most {most} together.",
                )
        other = checked_size(text, model, truncate, param=second.param(i))
        if template is None:
            ids, start = beginning.with_second(other)
            starts.append(min(start, model.info.max_model_len))
        else:
            ids = encode_shown(tokenizer, template, (part, other), instruction)
        prompts.append(fitting(ids, model, truncate, param=second.param(i), end=end))
    return prompts, starts


def _single_texts(
    first: GivenTexts, second: GivenTexts, model: ServedModel, truncate: int | None
) -> list[list[int]]:
    """The ids of each text, the first ones first."""
    num_texts = len(first.texts) + len(second.texts)
    if num_texts > MAX_PROMPTS + 1:
        message = f"There are {num_texts} texts; the limit is {MAX_PROMPTS + 1}."
        raise InvalidRequest(message, param=second.field, code="array_above_max_length")
    prompts: list[list[int]] = []
    for given in (first, second):
        for i, text in enumerate(given.texts):
            checkpoint()
            prompts.append(text_ids(text, model, truncate, param=given.param(i)))
    return prompts
