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
from server.generation.serving import ServingDep, TicketDep
from server.openapi.describe import TICKETED_ERRORS, returns


class PoolingController(Controller):
    path = "/v1"
    tags = ("Embeddings",)

    @post("/embeddings", status_code=200, responses=returns(EmbeddingList, *TICKETED_ERRORS))
    async def embed(
        self, data: JSONBody[EmbeddingRequest], serving: ServingDep, ticket: TicketDep
    ) -> Response[Any]:
        """Turn texts into vectors."""
        serving.check_accepting(data.model)
        return await answer(serving, ticket, translate_embeddings, data)

    @post("/rerank", status_code=200, responses=returns(Ranking, *TICKETED_ERRORS))
    async def rerank(
        self, data: JSONBody[RerankRequest], serving: ServingDep, ticket: TicketDep
    ) -> Response[Any]:
        """Order documents by how well they answer a query."""
        serving.check_accepting(data.model)
        return await answer(serving, ticket, translate_rerank, data)

    @post("/score", status_code=200, responses=returns(ScoreList, *TICKETED_ERRORS))
    async def score(
        self, data: JSONBody[ScoreRequest], serving: ServingDep, ticket: TicketDep
    ) -> Response[Any]:
        """Score pairs of texts."""
        serving.check_accepting(data.model)
        return await answer(serving, ticket, translate_score, data)


ROUTES: tuple[type[Controller], ...] = (PoolingController,)
