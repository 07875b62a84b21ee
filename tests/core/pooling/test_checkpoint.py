"""What the configuration of a checkpoint says of texts."""

import pytest
from transformers import BertConfig, RobertaConfig

from core.pooling.checkpoint import context_of


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
