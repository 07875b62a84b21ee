"""twin_values: a tiny configuration with the flags and the pattern of another one.

Whatever is as large as a model is reduced, and whatever shows late in a prompt comes early: windows
and the lengths of RoPE are shorter than the proof's prompts, epsilons are large, caps are small.
All else is as in the original, so that what a row makes of it is seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.models.families import describe

MAX_MODEL_LEN = 256
"""Tokens of a twin's longest sequence."""

ROPE_LENGTH = 32
"""Tokens for which a twin's RoPE is made, before it is scaled: fewer than a prompt has."""

WINDOW = 19
"""Tokens of a window: more than a block of the cache, fewer than a prompt has."""

VOCAB_SIZE = 97
HEAD_DIM, WIDE_HEAD_DIM = 16, 24
_MAX_RATIO = 8
"""Query heads of a head of keys."""

_HEADS = ("num_attention_heads", "n_head")
_KV_HEADS = ("num_key_value_heads", "num_global_key_value_heads")
_NUM_LAYERS = ("num_hidden_layers", "n_layer")
_BY_LAYER = ("layer_types", "mlp_layer_types", "no_rope_layers")
_LEFT_OUT = (
    "architectures auto_map _name_or_path transformers_version torch_dtype use_cache "
    "initializer_range attention_dropout attn_pdrop embd_pdrop resid_pdrop"
).split()
"""Keys without meaning for a twin, in which files of like models differ."""


def _each(value: float, keys: str) -> dict[str, float]:
    return dict.fromkeys(keys.split(), value)


_FIXED: dict[str, float] = {
    **_each(VOCAB_SIZE, "vocab_size vocab_size_per_layer_input"),
    **_each(64, "intermediate_size n_inner shared_expert_intermediate_size"),
    **_each(96, "intermediate_size_mlp"),
    **_each(32, "moe_intermediate_size"),
    **_each(MAX_MODEL_LEN, "max_position_embeddings n_positions n_ctx attention_chunk_size"),
    **_each(ROPE_LENGTH, "original_max_position_embeddings initial_context_length"),
    **_each(WINDOW, "sliding_window"),
    **_each(0.05, "rms_norm_eps layer_norm_eps norm_eps norm_epsilon layer_norm_epsilon"),
    **_each(2.0, "attn_logit_softcapping clip_qkv"),
    **_each(3.0, "final_logit_softcapping"),
    **_each(20, "query_pre_attn_scalar kv_lora_rank"),
    **_each(28, "q_lora_rank"),
    **_each(12, "qk_nope_head_dim"),
    **_each(8, "qk_rope_head_dim floor_scale hidden_size_per_layer_input"),
    **_each(0.2, "attention_multiplier"),
}
"""Instead of a number that is not 0."""

_AT_MOST: dict[str, int] = {
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 8),
    **dict.fromkeys(("num_experts_per_tok", "experts_per_token", "moe_k", "moe_topk"), 3),
    "n_group": 4,
    "n_shared_experts": 2,
    "moe_num_shared_experts": 2,
}
_BASES = ("rope_theta", "rope_local_base_freq", "rotary_emb_base")
_FACTORS = ("short_factor", "long_factor")


@dataclass(frozen=True, slots=True)
class Twin:
    """``max_model_len`` is the served length that its spec is made for."""

    values: Mapping[str, Any]
    max_model_len: int


def twins_of(values: Mapping[str, Any]) -> list[Twin]:
    """The twin; where RoPE depends on the served length, also one that is served without scaling.

    Raises Undescribed.
    """
    twin = twin_values(values)
    twins = [Twin(twin, MAX_MODEL_LEN)]
    if describe(twin, MAX_MODEL_LEN)[0] != describe(twin, ROPE_LENGTH)[0]:
        short = _with_lengths(twin, 2 * ROPE_LENGTH)
        twins.append(Twin(short, 2 * ROPE_LENGTH))
    return twins


def _with_lengths(values: Mapping[str, Any], length: int) -> dict[str, Any]:
    """The same with another length of RoPE, at any depth."""
    return {
        key: _with_lengths(value, length)
        if isinstance(value, dict)
        else length
        if key == "original_max_position_embeddings"
        else value
        for key, value in values.items()
    }


def twin_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The twin of the content of a ``config.json``, in the same form.

    Raises Undescribed for what no row describes.
    """
    spec, _ = describe(values, MAX_MODEL_LEN)
    kinds = {layer: i for i, layer in reversed(list(enumerate(spec.layers)))}
    num_layers = min(max(*kinds.values(), 1) + 1, len(spec.layers))
    if values.get("num_kv_shared_layers"):  # counted from the last layer
        num_layers = len(spec.layers)
    heads = _Heads(values)
    twin = _reduced(values, heads)
    twin |= {key: num_layers for key in _NUM_LAYERS if key in twin}
    twin |= {key: values[key][:num_layers] for key in _BY_LAYER if values.get(key)}
    if by_layer := values.get("per_layer_config"):
        kept = {i: own for i, own in by_layer.items() if int(i) < num_layers}
        twin["per_layer_config"] = _reduced(kept, heads)
    if (last := values.get("moe_layer_end_index")) is not None:
        twin["moe_layer_end_index"] = min(last, num_layers - 1)
    tokens = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    return twin | tokens | {"dtype": "float32"}


class _Heads:
    """The sizes of a twin's heads."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._num: int = next(values[key] for key in _HEADS if key in values)
        kv_heads = values.get("num_key_value_heads") or self._num
        ratio = min(max(self._num // kv_heads, 1), _MAX_RATIO)
        self.num = min(kv_heads, 4 if ratio == 1 else 2) * ratio
        hidden = values.get("hidden_size") or values.get("n_embd") or 0
        self._dim = values.get("head_dim") or hidden // self._num
        self._rope_dim = values.get("qk_rope_head_dim")
        self._fills_hidden = self._dim * self._num == hidden

    @property
    def hidden(self) -> int:
        """The size of the residual stream: all heads together where the original has that."""
        return HEAD_DIM * (self.num + (not self._fills_hidden))

    def kv(self, original: int) -> int:
        """The number of heads of keys."""
        return max(1, self.num * original // self._num)

    def dim(self, original: int) -> int:
        """The columns of a head, or of its values."""
        if self._rope_dim is not None:
            return 8 if original == self._rope_dim else 12
        return HEAD_DIM if original == self._dim else WIDE_HEAD_DIM

    def columns(self, original: int) -> int:
        """Some columns of a head, or one number for each pair of them."""
        return max(1, original * HEAD_DIM // self._dim)


def _reduced(values: Mapping[str, Any], heads: _Heads) -> dict[str, Any]:
    return {
        key: _value(key, value, values, heads)
        for key, value in values.items()
        if key not in _LEFT_OUT and not key.endswith("_token_id")
    }


def _value(key: str, value: Any, values: Mapping[str, Any], heads: _Heads) -> Any:
    """The twin's value of a key of ``values``, at any depth."""
    if isinstance(value, dict):
        return _reduced(value, heads)
    if isinstance(value, list) and key in _FACTORS:
        count = heads.columns(len(value))
        return [value[i * len(value) // count] for i in range(count)]
    if type(value) not in {int, float} or not value:
        return value
    if key in _FIXED:
        return _FIXED[key]
    if key in _AT_MOST:
        return min(value, _AT_MOST[key])
    if key in _BASES:  # a short prompt sees more of the slow frequencies
        return value**0.5
    if key == "topk_group":
        return max(1, value * min(values["n_group"], _AT_MOST["n_group"]) // values["n_group"])
    if key in _HEADS:
        return heads.num
    if key in _KV_HEADS:
        return heads.kv(value)
    if key in {"hidden_size", "n_embd"}:
        return heads.hidden
    if key in {"head_dim", "global_head_dim", "v_head_dim"}:
        return heads.dim(value)
    return heads.columns(value) if key == "rotary_dim" else value
