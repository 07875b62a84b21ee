"""Embeddings and scores of small random checkpoints, by the official SDK against a server."""

from pathlib import Path

import openai
import pytest

from compat_tests.conftest import StartServer
from compat_tests.support.api import Api
from compat_tests.support.clients import sdk_options
from tests.support.pooling_models import WIDTH, describe, save_cross_encoder, save_encoder

pytestmark = pytest.mark.slow


def test_c133_the_sdk_gets_the_vectors_of_the_raw_request(
    start_server: StartServer, tmp_path: Path
) -> None:
    save_encoder(tmp_path)
    describe(tmp_path, pooling={"pooling_mode": "mean"}, normalizes=True)
    server = start_server(str(tmp_path)).wait_ready()
    assert server.model == tmp_path.name
    with openai.OpenAI(**sdk_options(server)) as client:
        assert client.models.retrieve(tmp_path.name).id == tmp_path.name
        # The SDK asks for base64, which its own type does not allow, and decodes it.
        lenient = client.with_options(_extra_kwargs={"_strict_response_validation": False})
        answer = lenient.embeddings.create(model=tmp_path.name, input=["a fox", "a dog"])
        vectors = [item.embedding for item in answer.data]
        assert [len(vector) for vector in vectors] == [WIDTH] * 2
        assert sum(x * x for x in vectors[0]) == pytest.approx(1, abs=1e-4)
        floats = client.embeddings.create(
            model=tmp_path.name, input="a fox", encoding_format="float"
        )
        assert floats.data[0].embedding == pytest.approx(vectors[0], abs=1e-4)
        raw = Api(server).ok("/v1/embeddings", {"input": "a fox", "encoding_format": "float"})
        assert raw["data"][0]["embedding"] == floats.data[0].embedding
        assert floats.usage.prompt_tokens == floats.usage.total_tokens > 0
        with pytest.raises(openai.BadRequestError) as caught:
            client.embeddings.create(model=tmp_path.name, input="word " * 100)
        assert caught.value.code == "context_length_exceeded"
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(
                model=tmp_path.name, messages=[{"role": "user", "content": "hi"}]
            )
        assert caught.value.code == "unsupported_task"


def test_rerank(start_server: StartServer, tmp_path: Path) -> None:
    save_cross_encoder(tmp_path)
    server = start_server(str(tmp_path)).wait_ready()
    api = Api(server)
    body = {"query": "who?", "documents": ["a fox", "a dog", "nobody"], "top_n": 2}
    scores = [result["relevance_score"] for result in api.ok("/v1/rerank", body)["results"]]
    assert len(scores) == 2
    assert 1 >= scores[0] >= scores[1] >= 0
    assert api.refused("/v1/embeddings", {"input": "x"})["code"] == "unsupported_task"
