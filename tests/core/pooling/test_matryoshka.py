"""Sizes to which vectors may be cut: chosen, in the configuration, or known by the model's name."""

import pytest
from transformers import BertConfig, Gemma3TextConfig

from core.contract.errors import ModelLoadError
from core.pooling.embedder import sizes_of
from tests.support.pooling_models import decoder_config

QWEN = decoder_config()
HUB_CACHE = "/root/hub/models--Qwen--Qwen3-Embedding-0.6B/snapshots/0123abc"


@pytest.mark.parametrize(
    ("config", "source", "expected"),
    [
        (QWEN, "Qwen/Qwen3-Embedding-0.6B", ()),
        (QWEN, "/models/qwen3-embedding-4b-mlx", ()),
        (QWEN, HUB_CACHE, ()),
        (Gemma3TextConfig(), "google/embeddinggemma-300m", (512, 256, 128)),
        (QWEN, "/Qwen3-Embedding-0.6B/other", None),
        (QWEN, "org/not-Qwen3-Embedding", None),
        (QWEN, "Qwen/Qwen3-0.6B", None),
        (BertConfig(), "org/qwen3-embedding-of-another-kind", None),
        (BertConfig(is_matryoshka=True), "org/x", ()),
        (BertConfig(matryoshka_dimensions=[8, 2048]), "org/x", (8,)),
        (BertConfig(matryoshka_dimensions=[2048]), "org/x", None),
    ],
)
def test_what_the_checkpoint_and_its_name_say(config, source, expected):
    assert sizes_of(config, 1024, source=source, chosen=None) == expected


def test_the_name_of_a_folder_is_its_own(tmp_path, monkeypatch):
    folder = tmp_path / "Qwen3-Embedding-0.6B"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert sizes_of(QWEN, 1024, source=".", chosen=None) == ()


@pytest.mark.parametrize("chosen", [(), (512, 256)])
def test_the_operator_has_the_last_word(chosen):
    for config in (QWEN, BertConfig(matryoshka_dimensions=[8])):
        assert sizes_of(config, 1024, source="org/x", chosen=chosen) == chosen
    with pytest.raises(ModelLoadError, match="has 2048, and the vectors of org/x have 1024"):
        sizes_of(QWEN, 1024, source="org/x", chosen=(256, 2048))
