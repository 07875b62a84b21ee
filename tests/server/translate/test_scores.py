"""translate_rerank: a client that has left ends its work."""

import dataclasses

import msgspec
import pytest

from core.contract.errors import RequestCancelled
from core.contract.info import PoolingInfo
from core.text import pairs
from core.text.tokenizer import Tokenizer
from schemas.scores import RerankRequest
from server.served_model import ServedModel
from server.settings import Settings
from server.translate.scores import translate_rerank
from tests.support.engines import loaded
from tests.support.pooling_models import bert_tokenizer


def test_a_client_that_has_left_ends_the_work_between_two_documents(monkeypatch, leave):
    served = ServedModel.of(Settings(), loaded(object()))
    info = msgspec.structs.replace(served.info, pooling=PoolingInfo(task="score", size=1))
    tokenizer = Tokenizer(bert_tokenizer())
    model = dataclasses.replace(served, info=info, tokenizer=tokenizer)
    tokenizer.first_of_pairs("a").with_second("b")
    encoded, encode = [], pairs._encoded

    def noting(backend, given, **options):
        encoded.append(given)
        return encode(backend, given, **options)

    monkeypatch.setattr(pairs, "_encoded", noting)
    request = RerankRequest(query="query", documents=[f"document {i}" for i in range(9)])
    leave(lambda: "document 1" in encoded)
    with pytest.raises(RequestCancelled):
        translate_rerank(request, model)
    assert encoded == ["query", "document 0", "document 1"]
