"""twins_of: tiny configurations with the flags and the pattern of another one.

Whatever is as large as a model is reduced, and whatever shows late in a prompt comes early: windows
and the lengths of RoPE are shorter than the proof's prompts, epsilons are large, caps are small.
All else is as in the original, so that what a row makes of it is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Any

from core.models.families import describe

VOCAB_SIZE = 97
LENGTH = 256
"""Tokens of a twin's longest sequence."""

ROPE_LENGTH = 32
"""Tokens for which RoPE is made, before it is scaled: fewer than a prompt has."""

_HEAD_DIM, _WIDE = 16, 24
_MAX_RATIO = 8
"""Query heads of a head of keys."""

_BY_LAYER = ("layer_types", "mlp_layer_types", "no_rope_layers")
_LEFT_OUT = {
    *("architectures", "auto_map", "_name_or_path", "transformers_version", "torch_dtype"),
    *("use_cache", "initializer_range", "attention_dropout"),
    *("attn_pdrop", "embd_pdrop", "resid_pdrop"),
}
"""Keys without meaning for a twin, in which files of like models differ."""

_FIXED: dict[str, float] = {
    key: value
    for value, keys in {
        VOCAB_SIZE: "vocab_size vocab_size_per_layer_input",
        LENGTH: "max_position_embeddings n_positions n_ctx attention_chunk_size",
        19: "sliding_window",  # more than a block of the cache, less than a prompt
        64: "intermediate_size n_inner shared_expert_intermediate_size",
        96: "intermediate_size_mlp",
        32: "moe_intermediate_size",
        0.5: "clip_qkv",
        0.2: "rms_norm_eps layer_norm_eps norm_eps norm_epsilon layer_norm_epsilon",
        0.3: "attention_multiplier",
        2.0: "attn_logit_softcapping",
        3.0: "final_logit_softcapping",
        20: "query_pre_attn_scalar kv_lora_rank",
        28: "q_lora_rank",
        12: "qk_nope_head_dim",
        8: "qk_rope_head_dim floor_scale hidden_size_per_layer_input",
    }.items()
    for key in keys.split()
}
"""The twin's values of keys that have a number other than 0."""

_AT_MOST = {
    key: value
    for value, keys in {
        8: "num_experts num_local_experts n_routed_experts moe_num_experts",
        4: "n_group",
        3: "num_experts_per_tok experts_per_token moe_k moe_topk",
        2: "n_shared_experts moe_num_shared_experts",
    }.items()
    for key in keys.split()
}


@dataclass(frozen=True, slots=True)
class Twin:
    """Values as a ``config.json`` has them, and the served length that their spec is made for."""

    values: Mapping[str, Any]
    max_model_len: int


def twins_of(values: Mapping[str, Any]) -> list[Twin]:
    """The twin; where RoPE depends on the served length, also one that is served without scaling.

    Raises Undescribed for what no row describes.
    """
    twins = [Twin(twin_values(values), LENGTH)]
    if describe(twins[0].values, LENGTH)[0] != describe(twins[0].values, ROPE_LENGTH)[0]:
        length = 2 * ROPE_LENGTH
        twins.append(Twin(twin_values(values, length), length))
    return twins


def twin_values(values: Mapping[str, Any], rope_length: int = ROPE_LENGTH) -> dict[str, Any]:
    """The twin of the content of a ``config.json``, in the same form. Raises Undescribed."""
    layers = describe(values, LENGTH)[0].layers
    count = min(max(map(layers.index, set(layers))) + 1, len(layers))
    if values.get("num_kv_shared_layers"):  # counted from the last layer
        count = len(layers)
    twin = _Sizes(values, max(count, min(2, len(layers))), rope_length).reduced(values)
    tokens = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    return twin | tokens | {"dtype": "float32"}


class _Sizes:
    """The sizes of a twin with so many layers."""

    def __init__(self, values: Mapping[str, Any], num_layers: int, rope_length: int) -> None:
        self._num_layers = num_layers
        heads: int = next(values[key] for key in ("num_attention_heads", "n_head") if key in values)
        self._kv_heads: int = values.get("num_key_value_heads") or heads
        ratio = min(max(heads // self._kv_heads, 1), _MAX_RATIO)
        self._num_kv = min(self._kv_heads, 4 if ratio == 1 else 2)
        hidden = values.get("hidden_size") or values.get("n_embd") or 0
        self._dim: int = values.get("head_dim") or hidden // heads
        self._rope_dim: int | None = values.get("qk_rope_head_dim")
        self._groups: int = values.get("n_group") or 1
        num = self._num_kv * ratio  # all heads together are the stream where the original has that
        stream = num * (_HEAD_DIM if self._dim * heads == hidden else _WIDE)
        self._fixed = {
            **_FIXED,
            **dict.fromkeys(
                ("original_max_position_embeddings", "initial_context_length"), rope_length
            ),
            **dict.fromkeys(("num_hidden_layers", "n_layer"), num_layers),
            **dict.fromkeys(("num_attention_heads", "n_head"), num),
            **dict.fromkeys(("hidden_size", "n_embd"), stream),
        }
        last = {"max_window_layers": num_layers, "moe_layer_end_index": num_layers - 1}
        at_most = {key: partial(min, most) for key, most in {**_AT_MOST, **last}.items()}
        self._made: dict[str, Callable[[float], float]] = {
            **at_most,
            **dict.fromkeys(("num_key_value_heads", "num_global_key_value_heads"), self._kv),
            **dict.fromkeys(("head_dim", "global_head_dim", "v_head_dim"), self._head_dim),
            **dict.fromkeys(("rope_theta", "rope_local_base_freq", "rotary_emb_base"), sqrt),
            "rotary_dim": self._columns,
            "topk_group": self._chosen_groups,
        }

    def reduced(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """A part of the values at any depth."""
        return {
            key: self._value(key, value)
            for key, value in values.items()
            if key not in _LEFT_OUT and not key.endswith("_token_id")
        }

    def _value(self, key: str, value: Any) -> Any:
        if key == "per_layer_config" and value:
            value = {i: own for i, own in value.items() if int(i) < self._num_layers}
        if isinstance(value, dict):
            return self.reduced(value)
        if isinstance(value, list) and key in _BY_LAYER:
            return value[: self._num_layers]
        if isinstance(value, list) and key in {"short_factor", "long_factor"}:
            count = self._columns(len(value))
            return [value[i * len(value) // count] for i in range(count)]
        if type(value) not in {int, float} or not value:
            return value
        return self._made[key](value) if key in self._made else self._fixed.get(key, value)

    def _kv(self, original: float) -> int:
        return max(1, int(self._num_kv * original // self._kv_heads))

    def _head_dim(self, original: float) -> int:
        """The columns of a head, or of its values."""
        if self._rope_dim is not None:
            return 8 if original == self._rope_dim else 12
        return _HEAD_DIM if original == self._dim else _WIDE

    def _columns(self, original: float) -> int:
        """The number of some columns of a head, or of some pairs of them."""
        return max(1, int(original * _HEAD_DIM // self._dim))

    def _chosen_groups(self, original: float) -> int:
        return max(1, int(original * min(self._groups, _AT_MOST["n_group"]) // self._groups))
