"""EmbeddingRenderer: responses of POST /v1/embeddings."""

from __future__ import annotations

import base64
from dataclasses import dataclass

import msgspec
import numpy as np

from schemas.embeddings import Embedding, EmbeddingList, InputUsage
from server.render.vectors import Vectors, WholeOnly


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingRenderer(WholeOnly):
    """See Renderer. Vectors that are cut to ``size`` are normalised again if the model does."""

    model: str
    size: int | None
    is_normalized: bool
    is_base64: bool

    def _response(self, vectors: Vectors, usage: InputUsage) -> msgspec.Struct:
        encode = _base64 if self.is_base64 else _floats
        data = [
            Embedding(index=i, embedding=encode(vector))
            for i, vector in enumerate(self._cut(vectors))
        ]
        return EmbeddingList(data=data, model=self.model, usage=usage)

    def _cut(self, vectors: Vectors) -> Vectors:
        """Vectors of the length that was asked for."""
        if self.size is None or self.size >= vectors.shape[1]:
            return vectors
        vectors = vectors[:, : self.size]
        if self.is_normalized:
            norms = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors = vectors / np.maximum(norms, np.float32(1e-12))
        return vectors


def _floats(vector: Vectors) -> list[float] | str:
    numbers: list[float] = vector.tolist()
    return numbers


def _base64(vector: Vectors) -> list[float] | str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
