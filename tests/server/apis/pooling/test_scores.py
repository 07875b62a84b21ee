"""Pairs of texts: scores of an embedding model, the limit of texts, a client that has left."""

import dataclasses

import msgspec
import numpy as np
import pytest

from core.contract.errors import InvalidRequest, RequestCancelled
from core.contract.info import PoolingInfo
from core.text import special_text
from core.text.tokenizer import Tokenizer
from schemas.embeddings import InputUsage
from schemas.limits import MAX_PROMPTS
from schemas.scores import RerankRequest, ScoreRequest
from server.apis.pooling.scores import translate_rerank, translate_score
from server.generation.model import ServedModel
from server.settings.settings import Settings
from tests.support.engines import loaded
from tests.support.pooling_models import bert_tokenizer


def test_a_client_that_has_left_ends_the_work_between_two_documents(monkeypatch, leave):
    served = ServedModel.of(Settings(), loaded(object()))
    info = msgspec.structs.replace(served.info, pooling=PoolingInfo(task="score", size=1))
    tokenizer = Tokenizer(bert_tokenizer())
    model = dataclasses.replace(served, info=info, tokenizer=tokenizer)
    tokenizer.first_of_pairs("a").with_second("b")
    encoded, encode = [], special_text._encoded

    def noting(backend, given, **options):
        encoded.append(given)
        return encode(backend, given, **options)

    monkeypatch.setattr(special_text, "_encoded", noting)
    request = RerankRequest(query="query", documents=[f"document {i}" for i in range(9)])
    leave(lambda: "document 1" in encoded)
    with pytest.raises(RequestCancelled):
        translate_rerank(request, model)
    assert encoded == ["query", "document 0", "document 1"]


@pytest.fixture
def embedder():
    served = ServedModel.of(Settings(), loaded(object()))
    info = msgspec.structs.replace(served.info, pooling=PoolingInfo(task="embed", size=2))
    return dataclasses.replace(served, info=info, tokenizer=Tokenizer(bert_tokenizer()))


EAST, NORTH = (2.0, 0.0), (0.0, 3.0)


@pytest.mark.parametrize(
    ("first", "vectors", "scores"),
    [
        ("a", [EAST, NORTH, EAST], [0, 1]),
        (["a", "b"], [EAST, NORTH, NORTH, NORTH], [0, 1]),
    ],
)
def test_one_text_belongs_to_all_others_and_several_to_one_each(embedder, first, vectors, scores):
    job = translate_score(ScoreRequest(text_1=first, text_2=["c", "d"]), embedder)
    assert len(job.prompts) == len(vectors)
    usage = InputUsage(prompt_tokens=0, total_tokens=0)
    response = job.renderer.new_response(np.array(vectors), usage)
    assert [one.score for one in response.data] == scores


def test_the_texts_of_an_embedding_model_have_a_limit(embedder):
    texts = ["a"] * (MAX_PROMPTS // 2 + 1)
    with pytest.raises(InvalidRequest, match=f"the limit is {MAX_PROMPTS + 1}") as caught:
        translate_score(ScoreRequest(text_1=texts, text_2=texts), embedder)
    assert caught.value.param == "text_2"
