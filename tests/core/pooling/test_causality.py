"""Causal attention is found by running the model, whatever its configuration says."""

import pytest
import torch
from transformers import (
    AutoModel,
    Gemma3TextConfig,
    GPT2Config,
    MambaConfig,
    ModernBertConfig,
    RobertaConfig,
    T5Config,
)

from core.contract.errors import ModelLoadError
from core.pooling.embedder import is_causal
from tests.support.pooling_models import decoder_config

SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIDES = {**SMALL, "intermediate_size": 48}
GEMMA = {**SIDES, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 4}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (decoder_config(), True),
        (GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4), True),
        (Gemma3TextConfig(**GEMMA), True),
        (Gemma3TextConfig(**GEMMA, use_bidirectional_attention=True), False),
        (MambaConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2), True),
        (RobertaConfig(**SIDES), False),
        (ModernBertConfig(**SIDES, pad_token_id=0, local_attention=4), False),
    ],
    ids=lambda value: getattr(value, "model_type", str(value)),
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_is_causal_or_not(config, expected, dtype):
    torch.manual_seed(0)
    assert is_causal(AutoModel.from_config(config).eval().to(dtype)) is expected


def test_a_model_that_embeds_no_text_is_refused():
    config = T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)
    with pytest.raises(ModelLoadError, match="does not embed a text"):
        is_causal(AutoModel.from_config(config).eval())
