"""The tokenizer of a model: a ``FastTokenizer``, or transformers' own."""

from __future__ import annotations

from typing import Any

from core.contract.config import ModelConfig
from core.load.source import source_of
from core.text.tokenizer_files import load_tokenizer


def tokenizer_of(config: ModelConfig) -> Any:
    """Load the tokenizer that the operator names, else the model's. Raises ModelLoadError."""
    return load_tokenizer(
        config.tokenizer or source_of(config),
        trust_remote_code=config.trust_remote_code,
        chat_template=config.chat_template,
    )
