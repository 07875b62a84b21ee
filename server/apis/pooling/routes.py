"""POST /v1/embeddings, /v1/rerank and /v1/score."""

from __future__ import annotations

from typing import Any

from litestar import Controller, Response, post
from litestar.params import JSONBody

from schemas.embeddings import EmbeddingList, EmbeddingRequest
from schemas.scores import Ranking, RerankRequest, ScoreList, ScoreRequest
from server.apis.pooling.embeddings import translate_embeddings
from server.apis.pooling.scores import translate_rerank, translate_score
from server.generation.answer import answer
from server.generation.serving import AnyRequest
from server.openapi.describe import TICKETED_ERRORS, returns


class PoolingController(Controller):
    path = "/v1"
    tags = ("Embeddings",)

    @post("/embeddings", status_code=200, responses=returns(EmbeddingList, *TICKETED_ERRORS))
    async def embed(self, data: JSONBody[EmbeddingRequest], request: AnyRequest) -> Response[Any]:
        """Turn texts into vectors."""
        return await answer(request, translate_embeddings, data)

    @post("/rerank", status_code=200, responses=returns(Ranking, *TICKETED_ERRORS))
    async def rerank(self, data: JSONBody[RerankRequest], request: AnyRequest) -> Response[Any]:
        """Order documents by how well they answer a query."""
        return await answer(request, translate_rerank, data)

    @post("/score", status_code=200, responses=returns(ScoreList, *TICKETED_ERRORS))
    async def score(self, data: JSONBody[ScoreRequest], request: AnyRequest) -> Response[Any]:
        """Score pairs of texts."""
        return await answer(request, translate_score, data)


ROUTES: tuple[type[Controller], ...] = (PoolingController,)
