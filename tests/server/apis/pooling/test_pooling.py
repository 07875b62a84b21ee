"""POST /v1/embeddings, /v1/rerank and /v1/score over the whole application."""

import base64

import numpy as np
import pytest
import torch
from ollama import EmbedResponse
from openai.types import CreateEmbeddingResponse

from core.text import special_text
from tests.support.asgi import ask
from tests.support.pooling_models import (
    CONTEXT,
    WIDTH,
    bert_tokenizer,
    describe,
    save_cross_encoder,
    save_decoder,
    save_encoder,
)
from tests.support.records import attributed

pytestmark = pytest.mark.anyio

EMBEDDINGS, RERANK, SCORE = "/v1/embeddings", "/v1/rerank", "/v1/score"
TEXTS = ["the fox", "a", "lazy dogs and cats"]
PROMPTS = {"prompts": {"query": "query: ", "document": "text: "}, "default_prompt_name": None}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """An embedding model of several sizes, and a cross-encoder, with their own modules."""
    embedder, scorer = tmp_path_factory.mktemp("embedder"), tmp_path_factory.mktemp("scorer")
    model = save_encoder(embedder, matryoshka_dimensions=[8, WIDTH])
    describe(embedder, pooling={"pooling_mode": "mean"}, normalizes=True, prompts=PROMPTS)
    found = {"embed": (embedder, model), "score": (scorer, save_cross_encoder(scorer))}
    plain = tmp_path_factory.mktemp("decoder")
    found["plain decoder"] = (plain, save_decoder(plain))
    bare = bert_tokenizer()
    bare.backend_tokenizer.post_processor = None
    for task, save in (("bare embed", save_encoder), ("bare score", save_cross_encoder)):
        folder = tmp_path_factory.mktemp(task)
        found[task] = (folder, save(folder))
        bare.save_pretrained(folder)
    return found


@pytest.fixture
def serve(serve_folder, folders):
    return lambda task, **options: serve_folder(folders[task][0], **options)


@pytest.fixture
async def embedder(serve):
    return await serve("embed")


@pytest.fixture
async def scorer(serve):
    return await serve("score")


def vector(folders, text):
    """By transformers, pooled by hand."""
    inputs = bert_tokenizer()(text, return_tensors="pt")
    with torch.inference_mode():
        states = folders["embed"][1](**inputs).last_hidden_state[0]
    mean = states.mean(0)
    return (mean / mean.norm()).numpy()


async def refused(app, path, body):
    exchange = await ask(app, "POST", path, body)
    assert exchange.status == 400, exchange.body
    return exchange.json["error"]


async def test_vectors(embedder, folders):
    exchange = await ask(embedder, "POST", EMBEDDINGS, {"model": "m", "input": TEXTS})
    assert exchange.status == 200
    answer = CreateEmbeddingResponse.model_validate(exchange.json)
    assert [item.index for item in answer.data] == [0, 1, 2]
    for item, text in zip(answer.data, TEXTS, strict=True):
        np.testing.assert_allclose(item.embedding, vector(folders, text), atol=1e-4)
    num_tokens = sum(len(bert_tokenizer()(text)["input_ids"]) for text in TEXTS)
    assert exchange.json["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    assert exchange.json["model"] == "m"


async def test_one_text_ids_and_base64_are_the_same_vector(embedder, folders):
    ids = bert_tokenizer()(TEXTS[0])["input_ids"]
    expected = vector(folders, TEXTS[0])
    for given in (TEXTS[0], [TEXTS[0]], ids, [ids], f"  {TEXTS[0]}\n"):
        for path in (EMBEDDINGS, "/embeddings"):
            body = {"input": given, "encoding_format": "base64"}
            [item] = (await ask(embedder, "POST", path, body)).json["data"]
            found = np.frombuffer(base64.b64decode(item["embedding"]), "<f4")
            np.testing.assert_allclose(found, expected, atol=1e-4)
    [item] = (await ask(embedder, "POST", EMBEDDINGS, {"input": ids})).json["data"]
    np.testing.assert_allclose(item["embedding"], expected, atol=1e-4)


async def test_dimensions(embedder, folders):
    body = {"input": "the fox", "dimensions": 8}
    [item] = (await ask(embedder, "POST", EMBEDDINGS, body)).json["data"]
    cut = vector(folders, "the fox")[:8]
    np.testing.assert_allclose(item["embedding"], cut / np.linalg.norm(cut), atol=1e-4)
    [item] = (await ask(embedder, "POST", EMBEDDINGS, body | {"dimensions": WIDTH})).json["data"]
    assert len(item["embedding"]) == WIDTH
    for wanted in (9, WIDTH + 1):
        error = await refused(embedder, EMBEDDINGS, body | {"dimensions": wanted})
        assert (error["param"], "8, 32" in error["message"]) == ("dimensions", True)


async def test_vectors_are_cut_if_the_operator_says_so(serve):
    """The checkpoint of a causal model without matryoshka fields, as Qwen3-Embedding's."""
    body = {"input": "fox", "dimensions": 8}
    refusing = await serve("plain decoder")
    [whole] = (await ask(refusing, "POST", "/api/embed", {"input": "fox"})).json["embeddings"]
    own = {"input": "fox", "dimensions": WIDTH}
    assert (await ask(refusing, "POST", EMBEDDINGS, own)).status == 200
    assert (await refused(refusing, EMBEDDINGS, body))["param"] == "dimensions"
    assert "--matryoshka-dimensions" in await refused(refusing, "/api/embed", body)
    cutting = await serve("plain decoder", model={"matryoshka_dimensions": ()})
    expected = np.array(whole[:8]) / np.linalg.norm(whole[:8])
    [item] = (await ask(cutting, "POST", EMBEDDINGS, body)).json["data"]
    np.testing.assert_allclose(item["embedding"], expected, atol=1e-5)
    [cut] = (await ask(cutting, "POST", "/api/embed", body)).json["embeddings"]
    np.testing.assert_allclose(cut, expected, atol=1e-5)


async def test_ollamas_forms(embedder, folders):
    answer = (await ask(embedder, "POST", "/api/embed", {"model": "m:latest", "input": TEXTS})).json
    assert answer["prompt_eval_count"] > 0
    assert answer["total_duration"] > 0
    for found, text in zip(EmbedResponse(**answer).embeddings, TEXTS, strict=True):
        np.testing.assert_allclose(found, vector(folders, text), atol=1e-4)
    [cut] = (await ask(embedder, "POST", "/api/embed", {"input": "fox", "dimensions": 8})).json[
        "embeddings"
    ]
    assert len(cut) == 8
    one = (await ask(embedder, "POST", "/api/embeddings", {"prompt": TEXTS[0]})).json
    np.testing.assert_allclose(one["embedding"], vector(folders, TEXTS[0]), atol=1e-4)
    shown = (await ask(embedder, "POST", "/api/show", {})).json
    assert "embedding" in shown["capabilities"]
    assert "completion" not in shown["capabilities"]
    for raw in (False, True):
        body = {"prompt": "x", "raw": raw}
        assert "no text" in (await refused(embedder, "/api/generate", body))


async def test_ollama_cuts_long_texts(embedder):
    long = {"input": "abc " * 40}
    assert (await ask(embedder, "POST", "/api/embed", long)).status == 200
    assert "context length" in await refused(embedder, "/api/embed", long | {"truncate": False})


async def test_prompts_begin_the_text(embedder, folders):
    body = {"input": ["fox"], "prompt_name": "query"}
    [item] = (await ask(embedder, "POST", EMBEDDINGS, body)).json["data"]
    np.testing.assert_allclose(item["embedding"], vector(folders, "query: fox"), atol=1e-4)
    error = await refused(embedder, EMBEDDINGS, body | {"prompt_name": "poem"})
    assert (error["param"], "document, query" in error["message"]) == ("prompt_name", True)


async def test_too_long_inputs(embedder, folders):
    long = "abc " * 40
    error = await refused(embedder, EMBEDDINGS, {"input": ["a", long]})
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input[1]")
    most = CONTEXT - 2
    assert error["message"].startswith(
        f"This model's maximum context length is {most} tokens. However, your input resulted in "
    )
    body = {"input": long, "truncate_prompt_tokens": -1}
    answer = (await ask(embedder, "POST", EMBEDDINGS, body)).json
    assert answer["usage"]["prompt_tokens"] == most
    ids = bert_tokenizer()(long, truncation=True, max_length=most)["input_ids"]
    same = (await ask(embedder, "POST", EMBEDDINGS, {"input": ids})).json
    assert same["data"] == answer["data"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (EMBEDDINGS, {"input": ["b"] * 10}),
        (RERANK, {"query": "a", "documents": ["b"] * 10}),
        (SCORE, {"text_1": "a", "text_2": ["b"] * 10}),
    ],
)
async def test_nothing_is_cut_to_no_tokens(serve, path, body):
    body |= {"truncate_prompt_tokens": 0}
    for task in ("embed",) if path == EMBEDDINGS else ("embed", "score"):
        error = await refused(await serve(task), path, body)
        assert (error["param"], error["code"]) == (
            "truncate_prompt_tokens",
            "integer_below_min_value",
        )


async def test_texts_without_tokens_are_refused_by_name(serve):
    """This tokenizer puts no tokens around a text."""
    app = await serve("bare embed")
    for path, body, param in (
        (EMBEDDINGS, {"input": " "}, "input"),
        (EMBEDDINGS, {"input": ["a", " "]}, "input[1]"),
        (RERANK, {"query": " ", "documents": ["a"]}, "query"),
        (RERANK, {"query": "a", "documents": ["a", " ", "b"]}, "documents[1]"),
        (RERANK, {"query": "a", "documents": [""]}, "documents"),
        (SCORE, {"text_1": "a", "text_2": " "}, "text_2"),
        (SCORE, {"text_1": ["a", ""], "text_2": ["a", "b"]}, "text_1[1]"),
    ):
        error = await refused(app, path, body)
        assert (error["param"], error["message"]) == (param, f"{param} is a text without tokens.")
    for path, field in (("/api/embed", "input"), ("/api/embeddings", "prompt")):
        assert await refused(app, path, {field: " "}) == f"{field} is a text without tokens."
    scorer = await serve("bare score")
    body = {"query": "", "documents": [" "] * 10}
    assert (await refused(scorer, RERANK, body))["param"] == "documents[0]"
    body |= {"query": "a"}
    assert (await ask(scorer, "POST", RERANK, body)).status == 200


async def test_a_query_is_tokenized_once_and_no_longer_than_needed(scorer, monkeypatch):
    sizes, encode = [], special_text._encoded

    def noting(backend, given, **options):
        sizes.append(len(given))
        return encode(backend, given, **options)

    monkeypatch.setattr(special_text, "_encoded", noting)
    body = {"query": "a " * 15_000, "documents": ["b"] * 200, "truncate_prompt_tokens": -1}
    answer = await ask(scorer, "POST", RERANK, body)
    assert answer.status == 200
    assert answer.json["usage"]["prompt_tokens"] == 200 * CONTEXT
    assert sizes.count(8 * CONTEXT) == 1
    assert sum(sizes) < 8 * CONTEXT + 300


async def test_the_copies_of_a_query_fit_into_the_budget(serve):
    app = await serve("score", max_queued_prompt_tokens=100)
    body = {"query": "abcde", "documents": ["b"] * 10, "truncate_prompt_tokens": 5}
    assert (await ask(app, "POST", RERANK, body)).status == 200
    for path, more, param in (
        (RERANK, body | {"query": "abcde" * 3}, "query"),
        (SCORE, {"text_1": "abcde" * 3, "text_2": ["b"] * 10}, "text_1"),
    ):
        error = await refused(app, path, more)
        assert (error["param"], error["code"]) == (param, "invalid_value")
        assert "15 tokens in each of 10 pairs; the server takes at most 100" in error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": ["a", 5]}, "input"),
        ({"input": [5, "a"]}, "input"),
        ({"input": [10**6]}, "input"),
        ({"input": [-1]}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({}, "input"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
    ],
)
async def test_bad_inputs_are_refused_by_name(embedder, fields, param):
    error = await refused(embedder, EMBEDDINGS, fields)
    assert error["param"] == param


async def test_many_inputs_at_once(embedder, folders):
    texts = [f"text {i}" for i in range(2048)]
    answer = (await ask(embedder, "POST", EMBEDDINGS, {"input": texts})).json
    assert [item["index"] for item in answer["data"]] == list(range(2048))
    for i in (0, 77, 2047):
        expected = vector(folders, texts[i])
        np.testing.assert_allclose(answer["data"][i]["embedding"], expected, atol=1e-4)


async def test_other_doors_say_what_the_model_does(embedder, scorer, start_app):
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    for path, body in (
        ("/v1/chat/completions", chat),
        ("/v1/completions", {"prompt": "x"}),
        ("/generate", {"prompt": "x"}),
    ):
        assert "/v1/embeddings" in (await refused(embedder, path, body))["message"]
        assert "/v1/rerank" in (await refused(scorer, path, body))["message"]
    counted = await refused(embedder, "/v1/messages/count_tokens", chat)
    assert "/v1/embeddings" in counted["message"]
    assert (await refused(scorer, EMBEDDINGS, {"input": "a"}))["code"] == "unsupported_task"
    generator = await start_app()
    for path, body in (
        (EMBEDDINGS, {"input": "a"}),
        (RERANK, {"query": "a", "documents": ["b"]}),
        (SCORE, {"text_1": "a", "text_2": "b"}),
    ):
        assert (await refused(generator, path, body))["code"] == "unsupported_task"


def scores(folders, query, documents):
    found = []
    for document in documents:
        inputs = bert_tokenizer()(query, document, return_tensors="pt")
        with torch.inference_mode():
            found.append(float(torch.sigmoid(folders["score"][1](**inputs).logits[0, 0])))
    return found


async def test_rerank(scorer, folders):
    body = {"query": "fox", "documents": [*TEXTS[:2], {"text": TEXTS[2]}]}
    answer = (await ask(scorer, "POST", RERANK, body)).json
    expected = scores(folders, "fox", TEXTS)
    best = sorted(range(3), key=lambda i: -expected[i])
    assert [result["index"] for result in answer["results"]] == best
    for result in answer["results"]:
        assert result["relevance_score"] == pytest.approx(expected[result["index"]], abs=1e-4)
        assert result["document"] == {"text": TEXTS[result["index"]]}
    body |= {"top_n": 1, "return_documents": False}
    few = (await ask(scorer, "POST", "/rerank", body)).json
    assert [result["index"] for result in few["results"]] == best[:1]
    assert "document" not in few["results"][0]


async def test_score(scorer, folders):
    expected = scores(folders, "fox", TEXTS)
    for first in ("fox", ["fox"], ["fox"] * 3):
        answer = (await ask(scorer, "POST", SCORE, {"text_1": first, "text_2": TEXTS})).json
        assert [item["score"] for item in answer["data"]] == pytest.approx(expected, abs=1e-4)
        assert [item["index"] for item in answer["data"]] == [0, 1, 2]
    error = await refused(scorer, SCORE, {"text_1": ["a", "b"], "text_2": TEXTS})
    assert error["param"] == "text_1"
    error = await refused(scorer, SCORE, {"text_1": "a", "text_2": "abc " * 40})
    assert (error["code"], error["param"]) == ("context_length_exceeded", "text_2")


async def test_an_embedding_model_scores_by_cosines(embedder, folders):
    expected = [float(vector(folders, "fox") @ vector(folders, text)) for text in TEXTS]
    answer = (await ask(embedder, "POST", SCORE, {"text_1": "fox", "text_2": TEXTS})).json
    assert [item["score"] for item in answer["data"]] == pytest.approx(expected, abs=1e-4)
    ranked = (await ask(embedder, "POST", RERANK, {"query": "fox", "documents": TEXTS})).json
    best = sorted(range(3), key=lambda i: -expected[i])
    assert [result["index"] for result in ranked["results"]] == best


async def test_the_same_budgets_as_of_other_requests(serve):
    app = await serve("embed", max_queued_prompt_tokens=10)
    body = {"input": ["abc def"] * 4}
    assert (await refused(app, EMBEDDINGS, body))["code"] == "invalid_value"
    assert (await ask(app, "POST", EMBEDDINGS, {"input": "abc"})).status == 200


@pytest.mark.parametrize(
    ("task", "path", "body", "num_texts"),
    [
        ("embed", EMBEDDINGS, {"input": TEXTS}, 3),
        ("embed", "/api/embed", {"model": "m", "input": TEXTS}, 3),
        ("embed", "/api/embeddings", {"model": "m", "prompt": "a"}, 1),
        ("score", RERANK, {"query": "a", "documents": TEXTS}, 3),
        ("score", SCORE, {"text_1": "a", "text_2": TEXTS}, 3),
    ],
)
async def test_every_door_has_records(serve, task, path, body, num_texts):
    app = await serve(task)
    reply = await ask(app, "POST", path, body)
    assert reply.status == 200
    name = reply.headers["x-request-id"]
    record = (await ask(app, "GET", f"/requests/{name}")).json
    assert (record["route"], record["status"], record["ended_by"]) == (path, 200, "model")
    assert record["id"] == reply.json.get("id", record["id"])
    assert record["finish_reasons"] == ["stop"] * num_texts
    assert (record["parameters"], record["completion_tokens"]) == ({}, 0)
    assert record["prompt_tokens"] > 0
    assert 1 <= record["mean_batch"] <= record["max_batch"] <= num_texts
    assert record["times_ms"]["prefill"] > 0
    assert attributed(record["times_ms"]) >= 0.95 * record["duration_ms"]
