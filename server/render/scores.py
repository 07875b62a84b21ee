"""Renderers of scores: POST /v1/rerank and /v1/score."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import UNSET

from schemas.embeddings import InputUsage
from schemas.scores import RankedDocument, Ranking, Score, ScoreList
from server.render.vectors import ToScores, Vectors, WholeOnly


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
