"""Vectors and scores against sentence-transformers itself, which is no dependency.

Checkpoints are small and random; what is compared is everything around the transformer.
"""

import numpy as np
import pytest

from core.assembly.load import load
from core.contract.config import EngineConfig, ModelConfig
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from tests.support.pooling_models import (
    WIDTH,
    describe,
    save_cross_encoder,
    save_decoder,
    save_encoder,
)

sentence_transformers = pytest.importorskip("sentence_transformers")

pytestmark = pytest.mark.real

TEXTS = ["a", "the quick brown fox", " jumps! over the lazy dog.\n", "x y z", "Why Not?"]
TOLERANCE = 1e-4
MODULES = {
    "mean": {"pooling": {"pooling_mode_mean_tokens": True}, "normalizes": True},
    "cls": {"pooling": {"pooling_mode_cls_token": True}},
    "last": {"pooling": {"pooling_mode_lasttoken": True}, "normalizes": True},
    "max": {"pooling": {"pooling_mode_max_tokens": True}},
    "sqrt": {"pooling": {"pooling_mode_mean_sqrt_len_tokens": True}},
    "weighted": {"pooling": {"pooling_mode_weightedmean_tokens": True}},
    "dense": {
        "pooling": {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
        "dense": (2 * WIDTH, 8),
        "normalizes": True,
    },
    "none": None,
}


def run(pooler, prompts, starts=None):
    for i, ids in enumerate(prompts):
        pooler.engine.add(
            EngineRequest(
                request_id=str(i),
                prompt_token_ids=tuple(ids),
                params=SamplingParams(max_tokens=0),
                second_text_start=starts and starts[i],
            )
        )
    outputs = {}
    while pooler.engine.has_work:
        outputs |= {output.request_id: output for output in pooler.engine.step()}
    return np.stack([np.frombuffer(outputs[str(i)].vector, "<f4") for i in range(len(prompts))])


@pytest.mark.parametrize("save", [save_encoder, save_decoder])
@pytest.mark.parametrize("modules", MODULES)
def test_embeddings(tmp_path, save, modules):
    save(tmp_path)
    if MODULES[modules] is not None:
        describe(tmp_path, **MODULES[modules])
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    pooler = load(ModelConfig(model=str(tmp_path), device="cpu"), EngineConfig())
    ids = [pooler.tokenizer.encode(text.strip(), add_special_tokens=True) for text in TEXTS]
    np.testing.assert_allclose(run(pooler, ids), theirs.encode(TEXTS), atol=TOLERANCE)


def test_scores(tmp_path):
    save_cross_encoder(tmp_path)
    theirs = sentence_transformers.CrossEncoder(str(tmp_path), device="cpu")
    pooler = load(ModelConfig(model=str(tmp_path), device="cpu"), EngineConfig())
    pairs = [("who?", text) for text in TEXTS]
    encoded = [
        pooler.tokenizer.first_of_pairs(first).with_second(second) for first, second in pairs
    ]
    found = run(pooler, [ids for ids, _ in encoded], [start for _, start in encoded])
    np.testing.assert_allclose(found[:, 0], theirs.predict(pairs), atol=TOLERANCE)
