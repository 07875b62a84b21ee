"""What the files of a checkpoint say of texts that are not yet tokens: templates, prompts, case."""

import json

import numpy as np
import pytest
import torch

from tests.support.asgi import ask
from tests.support.pooling_models import (
    CONTEXT,
    bert_tokenizer,
    describe,
    pair_tokenizer,
    save_cross_encoder,
    save_decoder,
    save_encoder,
)

pytestmark = pytest.mark.anyio

EMBEDDINGS, SCORE = "/v1/embeddings", "/v1/score"
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}:{{ m.content }}<|im_end|>{% endfor %}!"
MESSAGE = {"method": "forward", "method_output_name": "last_hidden_state", "format": "flat"}


@pytest.fixture
async def shown(serve_folder, tmp_path):
    """A model whose transformer takes messages: the application, and its vector of a text."""
    tokenizer = pair_tokenizer(TEMPLATE)
    model = save_decoder(tmp_path, vocab_size=len(tokenizer))
    prompts = {"prompts": {"query": "Find."}}
    transformer = {"modality_config": {"message": MESSAGE}}
    describe(tmp_path, pooling={"pooling_mode": "lasttoken"}, bert=transformer, prompts=prompts)
    tokenizer.save_pretrained(tmp_path)

    def last(text):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        with torch.inference_mode():
            return model(torch.tensor([ids])).last_hidden_state[0, -1].numpy()

    return await serve_folder(tmp_path), last


async def test_a_text_to_embed_may_be_a_message(shown):
    app, last = shown
    for given, text in (
        ({"input": " a\n"}, "<|im_start|>user: a\n<|im_end|>!"),
        (
            {"input": "a", "prompt_name": "query"},
            "<|im_start|>system:Find.<|im_end|><|im_start|>user:a<|im_end|>!",
        ),
    ):
        [item] = (await ask(app, "POST", EMBEDDINGS, given)).json["data"]
        np.testing.assert_allclose(item["embedding"], last(text), atol=1e-4)
    one, other = (last(f"<|im_start|>user:{text}<|im_end|>!") for text in "ab")
    cosine = float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))
    [item] = (await ask(app, "POST", SCORE, {"text_1": "a", "text_2": "b"})).json["data"]
    assert item["score"] == pytest.approx(cosine, abs=1e-4)


async def test_a_message_that_is_cut_keeps_its_end(shown):
    app, last = shown
    body = {"input": "1" * 100, "truncate_prompt_tokens": -1}
    answer = (await ask(app, "POST", EMBEDDINGS, body)).json
    assert answer["usage"]["prompt_tokens"] == CONTEXT - 2
    around = len(pair_tokenizer()("<|im_start|>user:<|im_end|>!")["input_ids"])
    text = f"<|im_start|>user:{'1' * (CONTEXT - 2 - around)}<|im_end|>!"
    np.testing.assert_allclose(answer["data"][0]["embedding"], last(text), atol=1e-4)


async def test_a_cross_encoders_prompt_begins_the_first_text(serve_folder, tmp_path):
    """The files are those that sentence-transformers 6 writes."""
    model = save_cross_encoder(tmp_path)
    way = {"method": "forward", "method_output_name": "logits"}
    describe(tmp_path, bert={"modality_config": {"text": way}, "do_lower_case": True})
    named = {"prompts": {"q": "query: "}, "default_prompt_name": "q"}
    named["activation_fn"] = "torch.nn.modules.linear.Identity"
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(named))
    app = await serve_folder(tmp_path)
    inputs = bert_tokenizer()("query: who", "the fox", return_tensors="pt")
    with torch.inference_mode():
        expected = float(model(**inputs).logits[0, 0])
    body = {"text_1": "WHO", "text_2": "The Fox"}
    [item] = (await ask(app, "POST", SCORE, body)).json["data"]
    assert item["score"] == pytest.approx(expected, abs=1e-4)


async def test_lower_case_counts_on_every_door(serve_folder, tmp_path):
    save_encoder(tmp_path)
    describe(tmp_path, pooling={"pooling_mode": "mean"}, bert={"do_lower_case": True})
    app = await serve_folder(tmp_path)
    [item] = (await ask(app, "POST", SCORE, {"text_1": "A B", "text_2": "a b"})).json["data"]
    assert item["score"] == pytest.approx(1, abs=1e-6)
