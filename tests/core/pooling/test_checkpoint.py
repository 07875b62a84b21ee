"""What the configuration of a checkpoint says of texts."""

import pytest
from transformers import BertConfig, RobertaConfig

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.pooling.checkpoint import context_of
from core.pooling.recipe import read_recipe


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (BertConfig(max_position_embeddings=512, pad_token_id=1), 512),
        (RobertaConfig(max_position_embeddings=514, pad_token_id=1), 512),
        (RobertaConfig(max_position_embeddings=514, pad_token_id=0), 513),
    ],
)
def test_positions_of_roberta_begin_behind_that_of_its_padding(config, expected):
    assert context_of(config) == expected


def test_a_file_makes_no_vectors_whatever_its_name(tmp_path):
    file = tmp_path / "sha256-0"
    file.touch()
    assert read_recipe(ModelConfig(model=str(file))) is None
    with pytest.raises(ModelLoadError, match="--task embed needs a checkpoint in Hugging Face"):
        read_recipe(ModelConfig(model=str(file), task="embed"))
