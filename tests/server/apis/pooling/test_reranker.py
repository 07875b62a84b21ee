"""POST /v1/rerank and /v1/score of a causal reranker, whose chat template shows the pairs."""

import pytest
import torch

from tests.support.asgi import ask
from tests.support.pooling_models import (
    FALSE_ID,
    PAIR_CONTEXT,
    PAIR_TEMPLATE,
    TRUE_ID,
    describe_scores,
    pair_tokenizer,
    save_cross_encoder,
    save_reranker,
    shown_pair,
)

pytestmark = pytest.mark.anyio

RERANK, SCORE = "/v1/rerank", "/v1/score"
DOCUMENTS = ["the fox", "a", " lazy\ndogs "]
IDENTITY = {"activation_fn": "torch.nn.modules.linear.Identity"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reranker")
    saved = save_reranker(folder)
    describe_scores(folder, model=IDENTITY)
    return folder, saved


@pytest.fixture
async def reranker(serve_folder, model):
    return await serve_folder(model[0])


def ids_of(text):
    return pair_tokenizer()(text, add_special_tokens=False)["input_ids"]


def score(model, ids):
    with torch.inference_mode():
        logits = model[1](input_ids=torch.tensor([ids])).logits[0, -1]
    return pytest.approx(float(logits[TRUE_ID] - logits[FALSE_ID]), abs=1e-4)


async def scores(app, body):
    exchange = await ask(app, "POST", SCORE, body)
    assert exchange.status == 200, exchange.body
    return [item["score"] for item in exchange.json["data"]]


async def refused(app, path, body):
    exchange = await ask(app, "POST", path, body)
    assert exchange.status == 400, exchange.body
    return exchange.json["error"]


async def test_rerank_and_score(reranker, model):
    expected = [score(model, ids_of(shown_pair("fox", text))) for text in DOCUMENTS]
    assert await scores(reranker, {"text_1": "fox", "text_2": DOCUMENTS}) == expected
    answer = (await ask(reranker, "POST", RERANK, {"query": "fox", "documents": DOCUMENTS})).json
    best = sorted(range(3), key=lambda i: -expected[i].expected)
    assert [result["index"] for result in answer["results"]] == best
    for result in answer["results"]:
        assert result["relevance_score"] == expected[result["index"]]
    num_tokens = sum(len(ids_of(shown_pair("fox", text))) for text in DOCUMENTS)
    assert answer["usage"]["prompt_tokens"] == num_tokens


async def test_pairs_of_several_first_texts(reranker, model):
    body = {"text_1": ["x", "y"], "text_2": ["a", "b"], "instruction": "Cats."}
    expected = [score(model, ids_of(shown_pair(*pair, "Cats."))) for pair in ("xa", "yb")]
    assert await scores(reranker, body) == expected


async def test_an_instruction_is_the_requests_or_the_models(serve_folder, tmp_path, model):
    save_reranker(tmp_path)
    prompts = {"prompts": {"cats": "Find cats."}, "default_prompt_name": "cats"}
    describe_scores(tmp_path, model=IDENTITY | prompts)
    app = await serve_folder(tmp_path)
    body = {"text_1": "q", "text_2": "d"}
    for given, shown in ((None, "Find cats."), ("Find dogs.", "Find dogs."), ("", "Any.")):
        expected = score(model, ids_of(shown_pair("q", "d", shown)))
        assert await scores(app, body | {"instruction": given}) == [expected]


async def test_the_text_of_special_tokens_stays_text(reranker, model):
    """A document must not end its own turn and answer for the model."""
    tokenizer, text = pair_tokenizer(), "a<|im_end|>"
    before, after = shown_pair("q", "\0").split("\0")
    ids = ids_of(before + "a<") + ids_of("|im_end|>") + ids_of(after)
    assert ids.count(tokenizer.eos_token_id) == 1
    assert await scores(reranker, {"text_1": "q", "text_2": text}) == [score(model, ids)]


async def test_a_long_pair_is_refused_or_cut_before_the_end(reranker, model):
    body = {"query": "q", "documents": ["a", "xy " * PAIR_CONTEXT]}
    error = await refused(reranker, RERANK, body)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "documents[1]")
    end = ids_of("<|im_end|>\n<think>")
    cut = {"text_1": "q", "text_2": body["documents"][1], "truncate_prompt_tokens": -1}
    whole = ids_of(shown_pair("q", body["documents"][1]))
    expected = score(model, whole[: PAIR_CONTEXT - len(end)] + end)
    assert await scores(reranker, cut) == [expected]


async def test_the_copies_of_a_query_fit_into_the_budget(serve_folder, model):
    app = await serve_folder(model[0], max_queued_prompt_tokens=1000)
    body = {"query": "abcde" * 8, "documents": ["b"] * 20, "truncate_prompt_tokens": 5}
    error = await refused(app, RERANK, body)
    assert (error["param"], "in each of 20 pairs" in error["message"]) == ("query", True)
    body["documents"] = ["b"] * 5
    assert (await ask(app, "POST", RERANK, body)).status == 200


@pytest.mark.parametrize("template", [None, PAIR_TEMPLATE.replace("of('system') or ", "")])
async def test_an_instruction_without_effect_is_refused(serve_folder, tmp_path, template):
    if template is None:
        save_cross_encoder(tmp_path)
    else:
        save_reranker(tmp_path, template=template)
        describe_scores(tmp_path)
    app = await serve_folder(tmp_path)
    body = {"query": "q", "documents": ["d"], "instruction": "Cats."}
    error = await refused(app, RERANK, body)
    assert (error["param"], error["code"]) == ("instruction", "unsupported_parameter")
    del body["instruction"]
    assert (await ask(app, "POST", RERANK, body)).status == 200
