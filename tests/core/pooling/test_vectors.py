"""Vectors and scores against transformers with the pooling written out."""

import json

import numpy as np
import pytest
import torch

from core.assembly.load import load
from core.contract.config import EngineConfig, ModelConfig
from core.contract.errors import ModelLoadError
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from tests.support.pooling_models import (
    CONTEXT,
    WIDTH,
    bert_tokenizer,
    describe,
    save_cross_encoder,
    save_decoder,
    save_encoder,
)

TEXTS = ["a", "the quick brown fox", "jumps! over the lazy dog.", "x y z", "a"]
TOLERANCE = 1e-5


def loaded(folder, *, task="auto", pooling="auto", **config):
    model = ModelConfig(model=str(folder), device="cpu", task=task, pooling=pooling)
    return load(model, EngineConfig(**config))


def request(i, ids, start=None):
    return EngineRequest(
        request_id=str(i),
        prompt_token_ids=tuple(ids),
        params=SamplingParams(max_tokens=0),
        second_text_start=start,
    )


def run(pooler, requests):
    """The vectors of the requests, computed in batches."""
    for one in requests:
        pooler.engine.add(one)
    outputs = {}
    while pooler.engine.has_work:
        outputs |= {output.request_id: output for output in pooler.engine.step()}
    assert all(output.finish_reason == "stop" for output in outputs.values())
    return np.stack([np.frombuffer(outputs[one.request_id].vector, "<f4") for one in requests])


def vectors(pooler, texts=TEXTS):
    ids = [pooler.tokenizer.encode(text, add_special_tokens=True) for text in texts]
    return run(pooler, [request(i, one) for i, one in enumerate(ids)])


def hidden(model, text):
    """[num_tokens, WIDTH] of one text alone, by transformers."""
    inputs = bert_tokenizer()(text, return_tensors="pt")
    if model.config.model_type == "qwen3":
        inputs.pop("token_type_ids", None)
    with torch.inference_mode():
        return model(**inputs).last_hidden_state[0]


def check(found, expected):
    assert found.shape == (len(expected), len(expected[0]))
    np.testing.assert_allclose(found, torch.stack(expected).numpy(), atol=TOLERANCE)


POOLINGS = {
    "cls_token": lambda h: h[0],
    "mean_tokens": lambda h: h.mean(0),
    "max_tokens": lambda h: h.max(0).values,
    "mean_sqrt_len_tokens": lambda h: h.sum(0) / len(h) ** 0.5,
    "weightedmean_tokens": lambda h: (
        (h * torch.arange(1, len(h) + 1)[:, None]).sum(0) / sum(range(1, len(h) + 1))
    ),
    "lasttoken": lambda h: h[-1],
}


@pytest.mark.parametrize("save", [save_encoder, save_decoder])
@pytest.mark.parametrize("name", POOLINGS)
def test_poolings(tmp_path, save, name):
    model = save(tmp_path)
    describe(tmp_path, pooling={f"pooling_mode_{name}": True})
    pooler = loaded(tmp_path)
    assert pooler.info.pooling.task == "embed"
    assert pooler.info.pooling.size == WIDTH
    assert pooler.info.max_model_len == CONTEXT - 2
    check(vectors(pooler), [POOLINGS[name](hidden(model, text)) for text in TEXTS])


def test_the_newer_spelling_of_a_pooling(tmp_path):
    model = save_encoder(tmp_path)
    describe(tmp_path, pooling={"pooling_mode": "lasttoken"})
    check(vectors(loaded(tmp_path)), [hidden(model, text)[-1] for text in TEXTS])


def unit(vector):
    return vector / vector.norm()


@pytest.mark.parametrize("is_described", [False, True])
def test_the_mean_of_an_encoder_is_a_guess_that_is_logged(tmp_path, caplog, is_described):
    model = save_encoder(tmp_path)
    if is_described:
        describe(tmp_path)
    pooler = loaded(tmp_path)
    assert (pooler.info.pooling.poolings, pooler.info.pooling.is_normalized) == (("mean",), False)
    check(vectors(pooler), [hidden(model, text).mean(0) for text in TEXTS])
    assert "a guess: pooling mean, not normalised" in caplog.text
    assert "--pooling" in caplog.text


def test_of_a_causal_model_the_guess_is_the_last_token(tmp_path, caplog):
    model = save_decoder(tmp_path)
    pooler = loaded(tmp_path)
    info = pooler.info.pooling
    assert (info.poolings, info.is_normalized) == (("lasttoken",), True)
    check(vectors(pooler), [unit(hidden(model, text)[-1]) for text in TEXTS])
    assert "a guess: pooling lasttoken, normalised, because its attention is causal" in caplog.text


@pytest.mark.parametrize("name", ["cls", "last", "max", "mean"])
def test_the_operator_may_name_the_pooling(tmp_path, caplog, name):
    pool = POOLINGS[
        "lasttoken" if name == "last" else f"{name}_{'token' if name == 'cls' else 'tokens'}"
    ]
    model = save_decoder(tmp_path)
    check(vectors(loaded(tmp_path, pooling=name)), [unit(pool(hidden(model, t))) for t in TEXTS])
    describe(tmp_path, pooling={"pooling_mode": "weightedmean"})
    check(vectors(loaded(tmp_path, pooling=name)), [pool(hidden(model, text)) for text in TEXTS])
    assert "guess" not in caplog.text


def test_a_pooling_that_the_checkpoint_names_is_no_guess(tmp_path, caplog):
    save_decoder(tmp_path)
    describe(tmp_path, pooling={"pooling_mode": "lasttoken"}, normalizes=True)
    assert loaded(tmp_path).info.pooling.poolings == ("lasttoken",)
    assert "guess" not in caplog.text


def test_several_poolings_a_dense_layer_and_normalisation(tmp_path):
    model = save_encoder(tmp_path)
    flags = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}
    linear = describe(tmp_path, pooling=flags, dense=(2 * WIDTH, 8), normalizes=True)
    pooler = loaded(tmp_path)
    assert (pooler.info.pooling.size, pooler.info.pooling.is_normalized) == (8, True)
    expected = []
    for text in TEXTS:
        states = hidden(model, text)
        with torch.inference_mode():
            vector = torch.tanh(linear(torch.cat([states[0], states.mean(0)])))
        expected.append(vector / vector.norm())
    check(vectors(pooler), expected)


@pytest.mark.parametrize(
    ("fields", "function"),
    [
        ({}, torch.sigmoid),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, lambda x: x),
        (
            {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}},
            torch.tanh,
        ),
    ],
)
def test_scores_of_pairs(tmp_path, fields, function):
    model = save_cross_encoder(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | fields))
    pooler = loaded(tmp_path)
    assert pooler.info.pooling.task == "score"
    pairs = [("who", text) for text in TEXTS] + [("a b c", "")]
    requests, expected = [], []
    for i, (first, second) in enumerate(pairs):
        ids, start = pooler.tokenizer.first_of_pairs(first).with_second(second)
        inputs = bert_tokenizer()([first], [second], return_tensors="pt")
        assert ids == inputs["input_ids"][0].tolist()
        assert start == inputs["token_type_ids"][0].tolist().count(0)
        requests.append(request(i, ids, start))
        with torch.inference_mode():
            expected.append(function(model(**inputs).logits[0]))
    check(run(pooler, requests), expected)


def test_no_batch_has_more_tokens_than_the_budget(tmp_path):
    save_encoder(tmp_path)
    pooler = loaded(tmp_path, max_num_batched_tokens=40)
    sizes = []
    inner = pooler.engine._runner.run

    def noting(batch):
        sizes.append(len(batch) * max(len(one.prompt_token_ids) for one in batch))
        return inner(batch)

    pooler.engine._runner.run = noting
    alone = np.concatenate([vectors(pooler, [text]) for text in TEXTS])
    sizes.clear()
    np.testing.assert_allclose(vectors(pooler), alone, atol=TOLERANCE)
    assert 1 < len(sizes) < len(TEXTS)
    assert all(size <= 40 for size in sizes)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"1_Pooling/config.json": {"pooling_mode": "median"}}, "median"),
        ({"1_Pooling/config.json": {"include_prompt": False}}, "prompt"),
        ({"modules.json": [{"type": "a.LSTM", "path": "x"}]}, "LSTM"),
        ({"modules.json": ["Pooling"]}, "no list of modules"),
        ({"modules.json": [{"type": "a.Pooling", "path": "../../x"}]}, "outside"),
        ({"modules.json": [{"type": "a.Dense", "path": "/etc"}]}, "outside"),
    ],
)
def test_what_cannot_be_done_is_an_error_at_load(tmp_path, change, says):
    save_encoder(tmp_path)
    describe(tmp_path, pooling={"pooling_mode_mean_tokens": True})
    for name, value in change.items():
        (tmp_path / name).write_text(json.dumps(value))
    with pytest.raises(ModelLoadError, match=says):
        loaded(tmp_path)


def test_a_classifier_of_several_labels_is_refused(tmp_path):
    save_cross_encoder(tmp_path, num_labels=3)
    with pytest.raises(ModelLoadError, match="3 labels"):
        loaded(tmp_path)


def test_the_operator_may_name_the_task(tmp_path):
    model = save_cross_encoder(tmp_path)
    pooler = loaded(tmp_path, task="embed")
    check(vectors(pooler), [hidden(model.bert, text).mean(0) for text in TEXTS])
