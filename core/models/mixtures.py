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


def _softmax(c: Config, size: str, *, normalises: bool = True, **changes: Any) -> Mixture:
    """Experts by a softmax."""
    count = c.get("num_local_experts", c.get("num_experts", None))
    if count is None:
        raise Undescribed("num_experts is missing")
    router = Router("softmax", normalises)
    return replace(Mixture(count, c.get("num_experts_per_tok"), router, c.gated(size)), **changes)


def mixtral(c: Config) -> DecoderSpec:
    mixer = c.attention(c.rope(), window=c.get("sliding_window", None))
    return c.pre_norm(mixer, _softmax(c, "intermediate_size"))


def granitemoe(c: Config) -> DecoderSpec:
    return scaled(c, _softmax(c, "intermediate_size"))


def olmoe(c: Config) -> DecoderSpec:
    head_norm, clip = HeadNorm(c.rms(), over="all"), c.get("clip_qkv", None)
    mixer = c.attention(c.rope(), head_norm=head_norm, clip=clip, **c.biases())
    return c.pre_norm(mixer, _softmax(c, "intermediate_size", normalises=c.flag("norm_topk_prob")))


def hunyuan_v1_moe(c: Config) -> DecoderSpec:
    count, per_token = c.get("num_experts"), c.get("moe_topk")
    mixture = Mixture(count, per_token, Router("softmax", True), c.gated(), shared=c.gated())
    if not isinstance(count, int) or not isinstance(per_token, int):
        raise Undescribed("num_experts or moe_topk differ between layers")
    return c.pre_norm(hunyuan_attention(c), mixture)


def _some_dense(c: Config, mixture: Mixture) -> FeedForwards:
    """Qwen's layers, of which some are dense."""
    c.ignore("intermediate_size")
    every, dense = c.get("decoder_sparse_step", 1), c.get("mlp_only_layers", [])
    is_sparse = [(i + 1) % every == 0 and i not in dense for i in range(c.num_layers)]
    return [mixture if sparse else c.gated() for sparse in is_sparse]


def qwen2_moe(c: Config) -> DecoderSpec:
    windows = c.windows(switch="use_sliding_window")
    mixers = c.windowed(windows, has_bias=c.flag("qkv_bias", True))
    shared = c.gated("shared_expert_intermediate_size")
    how: dict[str, Any] = {
        "normalises": c.flag("norm_topk_prob"),
        "shared": shared,
        "has_shared_gate": True,
    }
    return c.pre_norm(mixers, _some_dense(c, _softmax(c, "moe_intermediate_size", **how)))


def qwen3_moe(c: Config) -> DecoderSpec:
    window = c.get("sliding_window", None) if c.flag("use_sliding_window") else None
    mixer = c.attention(c.rope(), window=window, head_norm=HeadNorm(c.rms()), **c.biases())
    mixture = _softmax(c, "moe_intermediate_size", normalises=c.flag("norm_topk_prob"))
    return c.pre_norm(mixer, _some_dense(c, mixture))


def gpt_oss(c: Config) -> DecoderSpec:
    c.one_of("hidden_act", "silu")
    gate = Activation("silu", c.get("swiglu_alpha", 1.702), c.get("swiglu_limit", 7.0))
    expert = FeedForward(c.get("intermediate_size"), gate, has_bias=True)
    router = Router("softmax", normalises=True, has_bias=True)
    mixture = Mixture(c.get("num_local_experts"), c.get("num_experts_per_tok"), router, expert)
    biases = c.biases(default=True)
    return c.pre_norm(c.windowed(c.windows(2), has_sinks=True, **biases), mixture)


def _sigmoid(c: Config, size: str = "moe_intermediate_size", **changes: Any) -> Mixture:
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
    mixture = Mixture(
        c.get("n_routed_experts"), c.get("num_experts_per_tok"), router, c.gated(size)
    )
    return replace(mixture, **changes)


def _first_dense(c: Config) -> FeedForwards:
    """Dense layers, then mixtures with a shared expert."""
    c.one_of("moe_layer_freq", 1)
    shared = c.gated("moe_intermediate_size", times=c.get("n_shared_experts"))
    mixture, first = _sigmoid(c, shared=shared), c.get("first_k_dense_replace")
    return [c.gated() if i < first else mixture for i in range(c.num_layers)]


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
    router = Router("sigmoid", True, has_choice_bias=True)
    count, per_token = c.get("num_local_experts"), c.get("num_experts_per_tok")
    part = c.get("rotary_dim", c.head_dim) / c.head_dim
    mixer = c.attention(c.rope(part=part), head_norm=HeadNorm(c.rms(), over="all"))
    return c.pre_norm(mixer, Mixture(count, per_token, router, c.gated()))


def mimo_v2_flash(c: Config) -> DecoderSpec:
    """Layers with a window have twice the heads of keys, and sinks."""
    value_scale = c.get("attention_value_scale", 0.707)
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
    size, count, per_token = "moe_intermediate_size", c.get("moe_num_experts"), c.get("moe_k")
    num_shared, router = (
        c.get("moe_num_shared_experts"),
        Router("softmax", True, has_choice_bias=True),
    )
    has_bias = c.flag("use_bias")
    shared = c.gated(size, times=num_shared, has_bias=has_bias) if num_shared else None
    mixture = Mixture(count, per_token, router, c.gated(size), shared)
    first, last, every = (
        c.get(f"moe_layer_{key}") for key in ("start_index", "end_index", "interval")
    )
    last = c.num_layers - 1 if last == -1 else last
    is_sparse = [(i + 1) % every == 0 and first <= i <= last for i in range(c.num_layers)]
    mixer = c.attention(c.rope(pairs="neighbours"), **c.biases("use_bias"))
    dense = c.gated(has_bias=has_bias)
    layers = [mixture if sparse else dense for sparse in is_sparse]
    return c.pre_norm(mixer, layers, ties=True, has_head_bias=has_bias)


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
    chunk, every = c.get("attention_chunk_size", None), c.get("no_rope_layer_interval", 4)
    if chunk is not None and chunk < c.max_model_len:
        raise Undescribed(f"attention_chunk_size {chunk} is less than {c.max_model_len} tokens")
    rotated = c.get("no_rope_layers", None) or [(i + 1) % every for i in range(c.num_layers)]
    head_norm = (
        HeadNorm(c.rms(has_weight=False), after_rope=True) if c.flag("use_qk_norm", True) else None
    )
    rope = c.rope(pairs="neighbours")
    temperature = (
        Temperature(c.get("attn_scale"), c.get("floor_scale"), 1)
        if c.flag("attn_temperature_tuning", True)
        else None
    )
    turned = c.attention(rope, head_norm=head_norm, **c.biases())
    plain = c.attention(None, temperature=temperature, **c.biases())
    step, router = (
        c.get("interleave_moe_layer_step", 1),
        Router("sigmoid", False, weighs_input=True),
    )
    sparse = c.get("moe_layers", list(range(step - 1, c.num_layers, step)))
    mixture = Mixture(
        c.get("num_local_experts"), c.get("num_experts_per_tok"), router, c.gated(), c.gated()
    )
    dense = c.gated("intermediate_size_mlp")
    feed_forwards = [mixture if i in sparse else dense for i in range(c.num_layers)]
    return c.pre_norm([turned if r else plain for r in rotated], feed_forwards)
