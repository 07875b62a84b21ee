"""Config: the configuration of a checkpoint, as rows read it."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from core.models.rope import rope_of
from core.models.spec import (
    Activation,
    Attention,
    DecoderSpec,
    FeedForward,
    Layer,
    Mixer,
    Mixture,
    Norm,
    Rope,
    Undescribed,
)

SLIDING, FULL = "sliding_attention", "full_attention"
PARALLEL: dict[str, Any] = {"is_parallel": True, "pre_feed_forward": None}
"""Fields of layers whose halves read the same normalised input."""

_NO_MEANING = """
model_type architectures transformers_version dtype torch_dtype _name_or_path auto_map use_cache
is_decoder is_encoder_decoder cache_implementation initializer_range pretraining_tp id2label
label2id problem_type return_dict task_specific_params tokenizer_class chunk_size_feed_forward
ep_size seq_aux aux_loss_alpha num_nextn_predict_layers num_mtp_layers mtp_layer_types
mtp_mlp_layer_types router_jitter_noise n_ctx
reorder_and_upcast_attn
"""
"""Keys that say nothing about the logits of a generator."""

_REPEATED = """
layer_types sliding_window use_sliding_window sliding_window_pattern _sliding_window_pattern
max_window_layers no_rope_layer_interval max_position_embeddings original_max_position_embeddings
initial_context_length experts_per_token num_key_value_heads head_dim qk_head_dim
vocab_size_per_layer_input
"""
"""Keys that others make meaningless in some families; rows read them where they count."""

_INERT = frozenset(_NO_MEANING.split() + _REPEATED.split())
_ENDINGS = ("_dropout", "_pdrop", "_token_id", "_coef")
_BEGINNINGS = ("output_", "summary_")
_REQUIRED: Any = object()
_MOST = 1 << 16
"""Layers, heads, and columns of a row or a head. No model has half as many."""


def is_inert(key: str) -> bool:
    """Return true if a key that a row does not read changes nothing."""
    return key in _INERT or key.endswith(_ENDINGS) or key.startswith(_BEGINNINGS)


class Config:
    """The content of a ``config.json``, in its newest or an older form, and what was read of it.

    Every reading method raises Undescribed.
    """

    def __init__(self, values: Mapping[str, Any], max_model_len: int) -> None:
        self.values = values
        self.max_model_len = max_model_len
        self.read: set[str] = set()

    def get(self, key: str, default: Any = _REQUIRED) -> Any:
        """The value of a key; null stands for the default."""
        self.read.add(key)
        value = self.values.get(key)
        if value is None and default is _REQUIRED:
            raise Undescribed(f"{key} is missing")
        return default if value is None else value

    def flag(self, key: str, default: bool = False) -> bool:
        """Return true if the value of a key is; null is not."""
        self.read.add(key)
        return bool(self.values.get(key, default))

    def one_of(self, key: str, *known: Any) -> Any:
        """The value of a key of which only some are known; the first stands for none."""
        value = self.get(key, known[0])
        if value not in known:
            raise Undescribed(f"{key} is {value!r}")
        return value

    def need(self, *keys: str) -> None:
        """Refuse a file without these, for which the family's class has defaults of its own."""
        for key in keys:
            if key not in self.values:
                raise Undescribed(f"{key} is missing")

    def ignore(self, *keys: str) -> None:
        """Class keys that change nothing in this family."""
        self.read.update(keys)

    def check_all_read(self) -> None:
        """Refuse a key with a value that was not read and is not inert."""
        for key, value in self.values.items():
            if key not in self.read and not is_inert(key) and value not in (None, False, [], {}):
                raise Undescribed(f"{key} is {reprlib.repr(value)}, which this row does not know")

    def count(self, key: str, default: Any = _REQUIRED) -> int:
        """A value that counts something which there is, and which memory may have."""
        value = self.get(key, default)
        if type(value) is not int or not 0 < value <= _MOST:
            raise Undescribed(f"{key} is {value!r}")
        return value

    @cached_property
    def hidden(self) -> int:
        return self.count("hidden_size")

    @cached_property
    def num_layers(self) -> int:
        return self.count("num_hidden_layers")

    @cached_property
    def layers(self) -> range:
        return range(self.num_layers)

    @cached_property
    def num_heads(self) -> int:
        return self.count("num_attention_heads")

    @cached_property
    def head_dim(self) -> int:
        return self.count("head_dim", self.hidden // self.num_heads)

    def activation(self, default: str = "silu") -> Activation:
        known = ("silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "relu2", "xielu")
        return Activation(self.one_of("hidden_act", default, *known))

    def rms(self, offset: float = 0.0, *, has_weight: bool = True) -> Norm:
        return Norm("rms", self.get("rms_norm_eps"), offset, has_weight=has_weight)

    def layer_norm(self, key: str = "layer_norm_eps", *, has_bias: bool = True) -> Norm:
        return Norm("layer", self.get(key), has_bias=has_bias)

    @cached_property
    def rope_parameters(self) -> dict[str, Any]:
        """``rope_parameters``, or what older files have in their place."""
        keys = ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings")
        older = {key: self.get(key, None) for key in keys} | self.get("rope_scaling", {})
        older = {key: value for key, value in older.items() if value is not None}
        if older.get("rope_type", older.get("type", "default")) == "default":
            older.pop("original_max_position_embeddings", None)
        if (local := self.get("rope_local_base_freq", None)) is not None:
            older = {FULL: older, SLIDING: {"rope_theta": local}}
        return dict(self.get("rope_parameters", older))

    def rope(
        self,
        kind: str | None = None,
        *,
        part: float | None = None,
        head_dim: int | None = None,
        **pairs: Any,
    ) -> Rope:
        """The rotation of layers of a kind.

        ``part`` is how much of a head is rotated where no key says so; None: always all of it.
        """
        parameters = self.rope_parameters
        if FULL in parameters or SLIDING in parameters:
            parameters = parameters.get(kind or "", {})
        if parameters.get("partial_rotary_factor", 1.0) != 1.0 and part is None:
            raise Undescribed("partial_rotary_factor has no meaning in this family")
        if part is not None:
            parameters = {"partial_rotary_factor": part} | parameters
        lengths = {"max_position": self.get("max_position_embeddings", 0)}
        lengths["max_model_len"] = self.max_model_len
        return rope_of(parameters, head_dim or self.head_dim, **lengths, **pairs)

    def kinds(self, every: int = 0) -> list[str]:
        """``layer_types``; without it each ``every``-th layer has no window."""
        found = self.get("layer_types", None)
        if found is None and every:
            return [SLIDING if (i + 1) % every else FULL for i in self.layers]
        if found is None or len(found) != self.num_layers or not set(found) <= {SLIDING, FULL}:
            raise Undescribed(f"layer_types are {found}")
        return list(found)

    def rotated(self) -> list[bool]:
        """Return, for each layer, true if its heads are rotated."""
        every = self.get("no_rope_layer_interval", 4)
        found = self.get("no_rope_layers", None) or [(i + 1) % every for i in self.layers]
        if len(found) != self.num_layers:
            raise Undescribed(f"no_rope_layers are {found}")
        return [bool(value) for value in found]

    def windows(self, every: int = 0, *, switch: str | None = None) -> list[int | None]:
        """The window of each layer; ``switch`` is a key that turns windows on."""
        if switch is not None and not self.flag(switch):
            return [None] * self.num_layers
        return [self.get("sliding_window") if k == SLIDING else None for k in self.kinds(every)]

    def biases(self, key: str = "attention_bias", default: bool = False) -> dict[str, Any]:
        has_bias = self.flag(key, default)
        return {"has_bias": has_bias, "has_output_bias": has_bias}

    def attention(self, rope: Rope | None, **changes: Any) -> Attention:
        """Attention without biases whose scores are divided by the root of ``head_dim``."""
        heads, head_dim = self.num_heads, self.head_dim
        if "num_kv_heads" not in changes:
            self.need("num_key_value_heads")
            changes["num_kv_heads"] = self.get("num_key_value_heads", heads)
        plain = Attention(heads, heads, head_dim, head_dim, head_dim**-0.5, rope)
        return replace(plain, **changes)

    def windowed(self, windows: Sequence[int | None], **changes: Any) -> list[Attention]:
        """Attention by layer, whose rotation may differ between layers with and without window."""
        kinds = [FULL if window is None else SLIDING for window in windows]
        ropes = {kind: self.rope(kind) for kind in set(kinds)}
        layers = zip(kinds, windows, strict=True)
        return [self.attention(ropes[kind], window=w, **changes) for kind, w in layers]

    def gated(
        self, key: str = "intermediate_size", *, times: int = 1, has_bias: bool = False
    ) -> FeedForward:
        return FeedForward(self.get(key) * times, self.activation(), has_bias=has_bias)

    def plain(self, activation: str, *, has_bias: bool) -> FeedForward:
        """A feed-forward without a gate; ``activation`` is the family's own."""
        size = self.get("intermediate_size")
        return FeedForward(size, self.activation(activation), is_gated=False, has_bias=has_bias)

    def decoder(
        self, layers: Sequence[Layer], final_norm: Norm, *, ties: bool = False, **changes: Any
    ) -> DecoderSpec:
        """A decoder; ``ties`` is whether its head is the embedding where no key says so."""
        ties_head, vocab_size = self.flag("tie_word_embeddings", ties), self.get("vocab_size")
        return DecoderSpec(vocab_size, self.hidden, tuple(layers), final_norm, ties_head, **changes)

    def pre_norm(
        self,
        mixers: Mixer | Sequence[Mixer],
        feed_forwards: FeedForward | Mixture | Sequence[FeedForward | Mixture],
        norm: Norm | None = None,
        *,
        of_layers: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> DecoderSpec:
        """A decoder with a norm before each half of a layer; what is no list is in all layers."""
        norm = norm or self.rms()
        mixers = mixers if isinstance(mixers, Sequence) else [mixers] * self.num_layers
        if not isinstance(feed_forwards, Sequence):
            feed_forwards = [feed_forwards] * len(mixers)
        how: dict[str, Any] = {"pre_mixer": norm, "pre_feed_forward": norm, **(of_layers or {})}
        layers = [Layer(m, f, **how) for m, f in zip(mixers, feed_forwards, strict=True)]
        return self.decoder(layers, norm, **changes)

    def post_norm(self, mixers: Sequence[Mixer]) -> DecoderSpec:
        """A decoder with a norm after each half of a layer."""
        norm = self.rms()
        how: dict[str, Any] = {"post_mixer": norm, "post_feed_forward": norm}
        return self.decoder([Layer(m, self.gated(), **how) for m in mixers], norm)
