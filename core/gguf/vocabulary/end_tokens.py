"""The tokens that end an answer.

Files name one end token, but chat models often have two: the end of a text and of a turn.
Further ones are control tokens whose text is one of ``_TEXTS``.
"""

from __future__ import annotations

import numpy as np

from core.gguf.metadata import CONTROL, Metadata

_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")

_TEXTS = {
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "</s>",
}


def end_token_ids(metadata: Metadata) -> set[int]:
    """Ids of the end tokens that a file names, and of control tokens with a usual name.

    Raises ModelLoadError.
    """
    tokens = metadata.strings("tokenizer.ggml.tokens")
    keys = [f"tokenizer.ggml.{key}" for key in _KEYS]
    found = {metadata.integer(key, most=len(tokens) - 1) for key in keys if key in metadata}
    if "tokenizer.ggml.token_type" in metadata:
        types = metadata.numbers("tokenizer.ggml.token_type")[: len(tokens)]
        control = np.flatnonzero(types == CONTROL).tolist()
        found |= {i for i in control if tokens[i] in _TEXTS}
    return found
