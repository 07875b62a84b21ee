"""Rows of families with experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from core.models.config import Config
from core.models.dense import hunyuan_attention, scaled
from core.models.rope import magnitude
from core.models.spec import (
    Activation,
    DecoderSpec,
    FeedForward,
    HeadNorm,
    LatentAttention,
    Mixture,
    Norm,
    Router,
    Temperature,
    Undescribed,
)

FeedForwards = list[FeedForward | Mixture]
NORMALISED = Router("softmax", normalises=True)


def _mixture(
    c: Config,
    router: Router,
    size: str = "intermediate_size",
    count: str = "num_local_experts",
    chosen: str = "num_experts_per_tok",
    **changes: Any,
) -> Mixture:
    """Experts without biases, by the names of keys; some releases save num_local_experts."""
    num_experts = c.get(count, None) or c.get("num_local_experts")
    return Mixture(num_experts, c.get(chosen), router, c.gated(size), **changes)


def mixtral(c: Config) -> DecoderSpec:
    mixer = c.attention(c.rope(), window=c.get("sliding_window", None))
    return c.pre_norm(mixer, _mixture(c, NORMALISED))


def granitemoe(c: Config) -> DecoderSpec:
    return scaled(c, _mixture(c, NORMALISED))


def olmoe(c: Config) -> DecoderSpec:
    head_norm, clip = HeadNorm(c.rms(), over="all"), c.get("clip_qkv", None)
    mixer = c.attention(c.rope(), head_norm=head_norm, clip=clip, **c.biases())
    router = Router("softmax", c.flag("norm_topk_prob"))
    return c.pre_norm(mixer, _mixture(c, router, count="num_experts"))


def hunyuan_v1_moe(c: Config) -> DecoderSpec:
    keys = {"count": "num_experts", "chosen": "moe_topk"}
    if any(isinstance(c.get(key), list) for key in keys.values()):
        raise Undescribed("num_experts or moe_topk differ between layers")
    mixture = _mixture(c, NORMALISED, **keys, shared=c.gated())
    return c.pre_norm(hunyuan_attention(c), mixture)


def _some_dense(c: Config, **changes: Any) -> FeedForwards:
    """Qwen's feed-forwards, of which some are dense."""
    c.ignore("intermediate_size")
    router = Router("softmax", c.flag("norm_topk_prob"))
    mixture = _mixture(c, router, "moe_intermediate_size", "num_experts", **changes)
    every, dense = c.get("decoder_sparse_step", 1), c.get("mlp_only_layers", [])
    is_sparse = [(i + 1) % every == 0 and i not in dense for i in c.layers]
    return [mixture if sparse else c.gated() for sparse in is_sparse]


def qwen2_moe(c: Config) -> DecoderSpec:
    windows = c.windows(switch="use_sliding_window")
    mixers = c.windowed(windows, has_bias=c.flag("qkv_bias", True))
    shared = c.gated("shared_expert_intermediate_size")
    return c.pre_norm(mixers, _some_dense(c, shared=shared, has_shared_gate=True))


def qwen3_moe(c: Config) -> DecoderSpec:
    window = c.get("sliding_window", None) if c.flag("use_sliding_window") else None
    mixer = c.attention(c.rope(), window=window, head_norm=HeadNorm(c.rms()), **c.biases())
    return c.pre_norm(mixer, _some_dense(c))


def mellum(c: Config) -> DecoderSpec:
    c.ignore("intermediate_size")
    kinds = c.get("mlp_layer_types", ["sparse"] * c.num_layers)
    router = Router("softmax", c.flag("norm_topk_prob", True))
    mixture = _mixture(c, router, "moe_intermediate_size")
    mixers = c.windowed(c.windows(), head_norm=HeadNorm(c.rms()), **c.biases())
    return c.pre_norm(mixers, [mixture if kind == "sparse" else c.gated() for kind in kinds])


def gpt_oss(c: Config) -> DecoderSpec:
    c.one_of("hidden_act", "silu")
    gate = Activation("silu", c.get("swiglu_alpha", 1.702), c.get("swiglu_limit", 7.0))
    expert = FeedForward(c.get("intermediate_size"), gate, has_bias=True)
    mixture = replace(_mixture(c, replace(NORMALISED, has_bias=True)), expert=expert)
    mixers = c.windowed(c.windows(2), has_sinks=True, **c.biases(default=True))
    return c.pre_norm(mixers, mixture)


def _sigmoid(c: Config, **changes: Any) -> Mixture:
    """DeepSeek V3's experts by groups, with a bias of the choice."""
    c.one_of("scoring_func", "sigmoid"), c.one_of("topk_method", "noaux_tc")
    router = Router(
        "sigmoid",
        c.flag("norm_topk_prob", True),
        has_choice_bias=True,
        num_groups=c.get("n_group", 1),
        groups_chosen=c.get("topk_group", 1),
        scale=c.get("routed_scaling_factor", 1.0),
    )
    return _mixture(c, router, "moe_intermediate_size", "n_routed_experts", **changes)


def _first_dense(c: Config) -> FeedForwards:
    """Dense layers, then mixtures with a shared expert."""
    c.one_of("moe_layer_freq", 1)
    shared = c.gated("moe_intermediate_size", times=c.get("n_shared_experts"))
    mixture, first = _sigmoid(c, shared=shared), c.get("first_k_dense_replace")
    return [c.gated() if i < first else mixture for i in c.layers]


def glm4_moe(c: Config) -> DecoderSpec:
    head_norm = HeadNorm(c.rms()) if c.flag("use_qk_norm") else None
    has_bias = c.flag("attention_bias")
    mixer = c.attention(c.rope(part=0.5), has_bias=has_bias, head_norm=head_norm)
    return c.pre_norm(mixer, _first_dense(c))


def dots1(c: Config) -> DecoderSpec:
    mixers = c.windowed(c.windows(), head_norm=HeadNorm(c.rms()), **c.biases())
    return c.pre_norm(mixers, _first_dense(c))


def minimax_m2(c: Config) -> DecoderSpec:
    c.one_of("scoring_func", "sigmoid"), c.one_of("use_qk_norm", True)
    part = c.get("rotary_dim", c.head_dim) / c.head_dim
    mixer = c.attention(c.rope(part=part), head_norm=HeadNorm(c.rms(), over="all"))
    return c.pre_norm(mixer, _mixture(c, Router("sigmoid", True, has_choice_bias=True)))


def mimo_v2_flash(c: Config) -> DecoderSpec:
    """Layers with a window have twice the heads of keys, and sinks."""
    value_scale = c.get("attention_value_scale", 1.0)
    how = {"value_dim": c.get("v_head_dim"), "value_scale": value_scale}
    how["has_bias"] = c.flag("attention_bias")
    mixers = []
    for window, kind in zip(c.windows(), c.kinds(), strict=True):
        mixer = c.attention(c.rope(kind, part=1.0), window=window, **how)
        many: dict[str, Any] = {"num_kv_heads": 2 * mixer.num_kv_heads, "has_sinks": True}
        mixers.append(mixer if window is None else replace(mixer, **many))
    mixture, kinds = _sigmoid(c), c.get("mlp_layer_types")
    return c.pre_norm(mixers, [mixture if kind == "sparse" else c.gated() for kind in kinds])


def ernie4_5_moe(c: Config) -> DecoderSpec:
    c.one_of("moe_norm_min", 1e-12)  # the chosen weights of a softmax never add up to so little
    size, num_shared = "moe_intermediate_size", c.get("moe_num_shared_experts")
    mixer = c.attention(c.rope(pairs="neighbours"), **c.biases("use_bias"))
    dense = c.gated(has_bias=mixer.has_bias)
    shared = c.gated(size, times=num_shared, has_bias=mixer.has_bias) if num_shared else None
    router = replace(NORMALISED, has_choice_bias=True)
    mixture = _mixture(c, router, size, "moe_num_experts", "moe_k", shared=shared)
    first, last = c.get("moe_layer_start_index"), c.get("moe_layer_end_index") % c.num_layers
    every = c.get("moe_layer_interval")
    is_sparse = [(i + 1) % every == 0 and first <= i <= last for i in c.layers]
    layers = [mixture if sparse else dense for sparse in is_sparse]
    return c.pre_norm(mixer, layers, ties=True, has_head_bias=mixer.has_bias)


def deepseek_v3(c: Config) -> DecoderSpec:
    plain, turned = c.get("qk_nope_head_dim"), c.get("qk_rope_head_dim")
    pairs = "neighbours" if c.flag("rope_interleave", True) else "halves"
    p, scale = c.rope_parameters, (plain + turned) ** -0.5
    if (strength := p.get("mscale_all_dim")) and p.get("rope_type", "default") != "default":
        scale *= magnitude(p["factor"], strength) ** 2
    mixer = LatentAttention(
        c.num_heads,
        plain,
        turned,
        c.get("v_head_dim"),
        c.get("q_lora_rank", None),
        c.get("kv_lora_rank"),
        scale,
        c.rope(head_dim=turned, pairs=pairs),
        Norm("rms", 1e-6),  # whatever rms_norm_eps is
        has_bias=c.flag("attention_bias"),
    )
    return c.pre_norm(mixer, _first_dense(c))


def llama4(c: Config) -> DecoderSpec:
    """Layers that are not rotated attend to all tokens, with a temperature."""
    if c.get("attention_chunk_size", c.max_model_len) < c.max_model_len:
        raise Undescribed(f"attention_chunk_size is less than {c.max_model_len} tokens")
    turned = c.attention(c.rope(pairs="neighbours"), **c.biases())
    if c.flag("use_qk_norm", True):
        head_norm = HeadNorm(c.rms(has_weight=False), after_rope=True)
        turned = replace(turned, head_norm=head_norm)
    plain = c.attention(None, **c.biases())
    if c.flag("attn_temperature_tuning", True):
        temperature = Temperature(c.get("attn_scale"), c.get("floor_scale"), 1)
        plain = replace(plain, temperature=temperature)
    router, step = (
        Router("sigmoid", False, weighs_input=True),
        c.get("interleave_moe_layer_step", 1),
    )
    mixture, dense = _mixture(c, router, shared=c.gated()), c.gated("intermediate_size_mlp")
    sparse = c.get("moe_layers", c.layers[step - 1 :: step])
    feed_forwards = [mixture if i in sparse else dense for i in c.layers]
    return c.pre_norm([turned if rotated else plain for rotated in c.rotated()], feed_forwards)
