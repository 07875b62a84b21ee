"""Whether a transformer is causal, found by running it: configurations do not all say so."""

from __future__ import annotations

from typing import Any

import torch

from core.contract.errors import ModelLoadError, first_line

_NUM_SHARED = 4
"""Tokens with which both texts begin. The last of them is looked at: the first one's states may be
dominated by a few channels."""

_TOLERANCE = 2e-4
"""Of the mean magnitude. The states of a causal model differ by some roundings, if at all; those of
a small encoder with random weights by thousandths (tests/core/pooling/test_causality.py)."""


@torch.inference_mode()
def is_causal(module: Any) -> bool:
    """Whether the states of a token are the same whatever follows it. Raises ModelLoadError."""
    size = int(module.config.get_text_config().vocab_size)
    ids = torch.randint(size, (2, 2 * _NUM_SHARED), generator=torch.Generator().manual_seed(0))
    ids[1, :_NUM_SHARED] = ids[0, :_NUM_SHARED]
    ids[1, _NUM_SHARED:] = (ids[0, _NUM_SHARED:] + 1) % size
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    try:
        output = module(**{name: value.to(module.device) for name, value in inputs.items()})
        one, other = output.last_hidden_state[:, _NUM_SHARED - 1].float()
    except Exception as error:  # any error that a module may raise for plain text
        raise ModelLoadError(f"the model does not embed a text: {first_line(error)}") from error
    return bool((one - other).abs().mean() <= _TOLERANCE * one.abs().mean())
