"""A random Qwen3 model with a byte-level tokenizer whose vocabulary is as large as the model's."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": {
        "vocab_size": 151_936,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
    "tiny": {
        "vocab_size": 4096,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
    },
}
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def make_model(shape: dict[str, Any], folder: Path) -> None:
    """Save a model with bfloat16 weights, and its tokenizer."""
    torch.manual_seed(0)
    tokenizer = make_tokenizer(shape["vocab_size"])
    config = Qwen3Config(
        **shape,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_tokenizer(vocab_size: int) -> PreTrainedTokenizerFast:
    """Train on Python's standard library, then add pairs of words up to ``vocab_size`` tokens."""
    num_trained = min(16_000, vocab_size - len(SPECIAL))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=num_trained,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    tokenizer.train_from_iterator((s.read_text("utf-8", "ignore") for s in sources), trainer)
    state = json.loads(tokenizer.to_str())
    vocab, merges = state["model"]["vocab"], state["model"]["merges"]
    words = [token for token in vocab if len(token) > 1 and token.isascii() and token.isalpha()]
    pairs = ((head, tail) for head in words for tail in words)
    while len(vocab) < vocab_size - len(SPECIAL):
        head, tail = next(pairs)
        if head + tail not in vocab:
            vocab[head + tail] = len(vocab)
            merges.append([head, tail])
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.add_special_tokens(SPECIAL)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=SPECIAL[0], pad_token=SPECIAL[0], eos_token=SPECIAL[2]
    )
