"""Estimate the memory of a step where peak usage cannot be measured."""

from __future__ import annotations

from core.load.layer_configs import layer_configs, number
from core.load.loaded_model import LoadedModel
from core.run.limits import Limits

_WIDE = 4
"""Bytes of a float32 value, the widest type that steps compute in."""

_LOGITS_COPIES = 3
"""Logits, their log-probabilities, and one copy that a model's own head makes of the logits."""

_SAMPLED_NBYTES = 32
"""Bytes of each entry of a sampled row: sorted values and ids, probabilities, their sums, masks."""

_HIDDEN_COPIES = 8
"""Residual, its norm, queries, keys, values, their rotated copies, and attention's output."""

_INNER_COPIES = 4
"""Gate, up, the activated gate, and the product."""

_EXPERT_ROWS = 2
"""Rows of hidden_size of a token for each of its experts: its input and its output."""


def step_nbytes(model: LoadedModel, limits: Limits) -> int:
    """Return the most bytes of a step, without weights, KV cache and attention.

    The largest step computes prompt log-probabilities, so it has the logits of every token, and
    samples for all sequences. Layers run one after the other, and the logits after the last.
    """
    num_tokens = limits.max_num_batched_tokens
    logits = _LOGITS_COPIES * num_tokens * model.vocab_size * _WIDE
    samples = limits.max_num_seqs * model.vocab_size * _SAMPLED_NBYTES
    return max(layer_nbytes(model, num_tokens), logits + samples)


def layer_nbytes(model: LoadedModel, num_tokens: int) -> int:
    """Return the most bytes of one layer, without weights, KV cache and attention."""
    return num_tokens * max(map(_values_of_token, layer_configs(model.config))) * _WIDE


def _values_of_token(layer: object) -> int:
    hidden = number(layer, "hidden_size")
    num_experts = number(layer, "num_experts_per_tok")
    experts = num_experts * number(layer, "moe_intermediate_size")
    inner = max(number(layer, "intermediate_size") or 4 * hidden, experts)
    return (_HIDDEN_COPIES + _EXPERT_ROWS * num_experts) * hidden + _INNER_COPIES * inner
