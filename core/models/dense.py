"""Rows of families without experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from core.models.config import FULL, PARALLEL, SLIDING, Config
from core.models.spec import (
    Activation,
    Attention,
    DecoderSpec,
    FeedForward,
    HeadNorm,
    Layer,
    LayerInput,
    Mixer,
    Temperature,
    Undescribed,
)


def llama(c: Config) -> DecoderSpec:
    num_kv_heads = c.get("num_key_value_heads", c.num_heads)
    mixer = c.attention(c.rope(), num_kv_heads=num_kv_heads, **c.biases())
    return c.pre_norm(mixer, c.gated(has_bias=c.flag("mlp_bias")))


def cwm(c: Config) -> DecoderSpec:
    return c.pre_norm(c.windowed(c.windows()), c.gated(has_bias=c.flag("mlp_bias")))


def ministral(c: Config) -> DecoderSpec:
    return c.pre_norm(c.windowed(c.windows()), c.gated())


def mistral(c: Config) -> DecoderSpec:
    return c.pre_norm(c.attention(c.rope(), window=c.get("sliding_window", None)), c.gated())


def ministral3(c: Config) -> DecoderSpec:
    p, window = c.rope_parameters, c.get("sliding_window", None)
    p.pop("max_position_embeddings", None)
    strength = p.pop("llama_4_scaling_beta", 0)
    length = p.get("original_max_position_embeddings", 0)
    temperature = Temperature(strength, length, 0) if strength else None
    return c.pre_norm(c.attention(c.rope(), window=window, temperature=temperature), c.gated())


def arcee(c: Config) -> DecoderSpec:
    feed_forward = c.plain("relu2", has_bias=c.flag("mlp_bias"))
    return c.pre_norm(c.attention(c.rope(), **c.biases()), feed_forward)


def apertus(c: Config) -> DecoderSpec:
    mixer = c.attention(c.rope(), head_norm=HeadNorm(c.rms()), **c.biases())
    return c.pre_norm(mixer, c.plain("xielu", has_bias=False))


def seed_oss(c: Config) -> DecoderSpec:
    has_bias, has_output_bias = c.flag("attention_bias", True), c.flag("attention_out_bias")
    mixer = c.attention(c.rope(), has_bias=has_bias, has_output_bias=has_output_bias)
    return c.pre_norm(mixer, c.gated(has_bias=c.flag("mlp_bias")))


def qwen2(c: Config) -> DecoderSpec:
    windows = c.windows(switch="use_sliding_window")
    return c.pre_norm(c.windowed(windows, has_bias=True), c.gated())


def qwen3(c: Config) -> DecoderSpec:
    windows = c.windows(switch="use_sliding_window")
    mixers = c.windowed(windows, head_norm=HeadNorm(c.rms()), **c.biases())
    return c.pre_norm(mixers, c.gated())


def phi3(c: Config) -> DecoderSpec:
    """The length of the pretraining is not among RoPE's parameters; one that is has no effect."""
    p, length = c.rope_parameters, c.get("original_max_position_embeddings", 4096)
    if p.get("rope_type", p.get("type")) == "longrope":
        p["original_max_position_embeddings"] = length
    mixer = c.attention(c.rope(part=1.0), window=c.get("sliding_window", None))
    return c.pre_norm(mixer, c.gated())


def smollm3(c: Config) -> DecoderSpec:
    mixers = c.windowed(c.windows(switch="use_sliding_window"), **c.biases())
    layers = zip(mixers, c.rotated(), strict=True)
    mixers = [mixer if is_rotated else replace(mixer, rope=None) for mixer, is_rotated in layers]
    return c.pre_norm(mixers, c.gated(has_bias=c.flag("mlp_bias")), ties=True)


def granite(c: Config) -> DecoderSpec:
    return scaled(c, c.gated(has_bias=c.flag("mlp_bias")))


def scaled(c: Config, feed_forward: Any) -> DecoderSpec:
    """Granite's four multipliers."""
    mixer = c.attention(c.rope(), scale=c.get("attention_multiplier", 1.0), **c.biases())
    return c.pre_norm(
        mixer,
        feed_forward,
        of_layers={"residual_scale": c.get("residual_multiplier", 1.0)},
        embedding_scale=c.get("embedding_multiplier", 1.0),
        logit_scale=1 / c.get("logits_scaling", 1.0),
    )


def olmo2(c: Config) -> DecoderSpec:
    mixer = c.attention(c.rope(), head_norm=HeadNorm(c.rms(), over="all"), **c.biases())
    return c.post_norm([mixer] * c.num_layers)


def olmo3(c: Config) -> DecoderSpec:
    head_norm = HeadNorm(c.rms(), over="all")
    return c.post_norm(c.windowed(c.windows(4), head_norm=head_norm, **c.biases()))


def exaone4(c: Config) -> DecoderSpec:
    """If layers have a window, those without one are not rotated."""
    head_norm = HeadNorm(c.rms())
    if c.get("sliding_window", None) is None:
        return c.post_norm([c.attention(c.rope(), head_norm=head_norm)] * c.num_layers)
    mixers = c.windowed(c.windows(c.get("sliding_window_pattern", 4)), head_norm=head_norm)
    return c.post_norm([m if m.window else replace(m, rope=None) for m in mixers])


def _gemma(
    c: Config, mixers: Sequence[Mixer], offset: float, *, sizes: Sequence[int] = (), **more: Any
) -> DecoderSpec:
    """Four norms in each layer; ``more`` are fields of layers."""
    c.ignore("hidden_act")  # transformers reads hidden_activation alone
    c.one_of("use_bidirectional_attention", None, False)
    sizes, norm = sizes or [c.get("intermediate_size")] * len(mixers), c.rms(offset)
    layers = [
        Layer(mixer, FeedForward(size, gemma_activation(c)), norm, norm, norm, norm, **more)
        for mixer, size in zip(mixers, sizes, strict=True)
    ]
    cap, scale = c.get("final_logit_softcapping", None), c.hidden**0.5
    return c.decoder(layers, norm, ties=True, embedding_scale=scale, logit_cap=cap)


def gemma_activation(c: Config) -> Activation:
    return Activation(c.one_of("hidden_activation", "gelu_pytorch_tanh"))


def gemma(c: Config) -> DecoderSpec:
    c.one_of("use_bidirectional_attention", None, False)
    known = ("gelu_pytorch_tanh", "gelu")  # the second one is the first in released files
    c.one_of("hidden_act", *known), c.one_of("hidden_activation", *known)
    feed_forward = FeedForward(c.get("intermediate_size"), Activation(known[0]))
    mixer, scale = c.attention(c.rope(), **c.biases()), c.hidden**0.5
    return c.pre_norm(mixer, feed_forward, c.rms(1.0), ties=True, embedding_scale=scale)


def gemma2(c: Config) -> DecoderSpec:
    scale, cap = c.get("query_pre_attn_scalar") ** -0.5, c.get("attn_logit_softcapping", None)
    return _gemma(c, c.windowed(c.windows(2), scale=scale, softcap=cap, **c.biases()), 1.0)


def gemma3(c: Config) -> DecoderSpec:
    c.one_of("attn_logit_softcapping", None)  # transformers' modules do not apply it
    scale, head_norm = c.get("query_pre_attn_scalar") ** -0.5, HeadNorm(c.rms(1.0))
    windows = c.windows(c.get("sliding_window_pattern", 6))
    return _gemma(c, c.windowed(windows, scale=scale, head_norm=head_norm, **c.biases()), 1.0)


def gemma4(c: Config) -> DecoderSpec:
    """The last layers use keys of earlier ones; full attention has heads of its own size."""
    c.one_of("enable_moe_block", False)
    c.ignore("num_experts", "top_k_experts", "moe_intermediate_size")
    kinds, num_own = c.kinds(6), c.num_layers - c.get("num_kv_shared_layers", 0)
    kinds[-1] = FULL
    norm, are_same = c.rms(), c.flag("attention_k_eq_v")
    how = {"scale": 1.0, "head_norm": HeadNorm(norm), **c.biases()}
    how["value_norm"] = replace(norm, has_weight=False)
    mixers, sizes = [], []
    for i, kind in enumerate(kinds):
        own = _gemma4_heads(c, i, kind)
        head_dim, window = own["head_dim"], c.get("sliding_window") if kind == SLIDING else None
        rope = c.rope(kind, part=1.0, head_dim=head_dim)
        keys_of = None if i < num_own else max(j for j in range(num_own) if kinds[j] == kind)
        how |= {"keys_of": keys_of, "values_are_keys": are_same and kind == FULL}
        mixers.append(c.attention(rope, window=window, value_dim=head_dim, **how, **own))
        is_wide = keys_of is not None and c.flag("use_double_wide_mlp")
        sizes.append(c.get("intermediate_size") * (1 + is_wide))
    token, size = None, c.get("hidden_size_per_layer_input", 0)
    more: dict[str, Any] = {"has_output_scale": True}
    if size:
        token = LayerInput(c.get("vocab_size_per_layer_input"), size, norm)
        more["layer_input"] = FeedForward(size, gemma_activation(c), is_gated=False)
        more["input_norm"] = norm
    return replace(_gemma(c, mixers, 0.0, sizes=sizes, **more), layer_input=token)


def _gemma4_heads(c: Config, layer: int, kind: str) -> dict[str, int]:
    """The size of a layer's heads and the number of those of keys, in either form of the file."""
    found = {"head_dim": c.head_dim, "num_key_value_heads": c.get("num_key_value_heads")}
    by_layer = c.get("per_layer_config", None)
    full = {
        "head_dim": c.get("global_head_dim", 512),
        "num_key_value_heads": c.get("num_global_key_value_heads", None),
    }
    if by_layer is not None:
        found |= {int(i): changes for i, changes in by_layer.items()}.get(layer, {})
    elif kind == FULL:
        found |= {key: value for key, value in full.items() if value is not None}
    if unknown := sorted(found.keys() - full.keys()):
        raise Undescribed(f"per_layer_config has {unknown[0]}")
    return {"head_dim": found["head_dim"], "num_kv_heads": found["num_key_value_heads"]}


def glm4(c: Config) -> DecoderSpec:
    rope = c.rope(part=0.5, pairs="neighbours")
    mixer, norm = c.attention(rope, has_bias=c.flag("attention_bias")), c.rms()
    layers = [Layer(mixer, c.gated(), norm, norm, norm, norm)] * c.num_layers
    return c.decoder(layers, norm)


def hunyuan_v1_dense(c: Config) -> DecoderSpec:
    return c.pre_norm(hunyuan_attention(c), c.gated())


def hunyuan_attention(c: Config) -> Attention:
    """Heads are normalised after rotation; "dynamic" RoPE with alpha does not depend on length."""
    p = c.rope_parameters
    if p.get("alpha") and p.get("rope_type", p.get("type")) == "dynamic":
        p["rope_type"] = "ntk_alpha"
    return c.attention(c.rope(), head_norm=HeadNorm(c.rms(), after_rope=True), **c.biases())


def nanochat(c: Config) -> DecoderSpec:
    """No norm has a weight. Angles are negative: pairs are rotated the other way."""
    norm, rope = c.rms(has_weight=False), c.rope()
    rope = replace(rope, frequencies=tuple(-f for f in rope.frequencies))
    mixer = c.attention(rope, head_norm=HeadNorm(norm, after_rope=True), **c.biases())
    feed_forward, cap = c.plain("relu2", has_bias=False), c.get("final_logit_softcapping", None)
    return c.pre_norm(mixer, feed_forward, norm, embedding_norm=norm, logit_cap=cap)


def ernie4_5(c: Config) -> DecoderSpec:
    mixer = c.attention(c.rope(pairs="neighbours"), **c.biases("use_bias"))
    return c.pre_norm(mixer, c.gated(has_bias=c.flag("use_bias")), ties=True)


def starcoder2(c: Config) -> DecoderSpec:
    norm, window = c.layer_norm("norm_epsilon"), c.get("sliding_window", None)
    mixer = c.attention(c.rope(), window=window, **c.biases("use_bias", True))
    feed_forward = c.plain("gelu_pytorch_tanh", has_bias=mixer.has_bias)
    return c.pre_norm(mixer, feed_forward, norm, ties=True)


def nemotron(c: Config) -> DecoderSpec:
    norm = replace(c.layer_norm("norm_eps"), offset=1.0)
    mixer = c.attention(c.rope(part=0.5), **c.biases())
    return c.pre_norm(mixer, c.plain("relu2", has_bias=c.flag("mlp_bias")), norm)


def cohere2(c: Config) -> DecoderSpec:
    norm, rope = c.layer_norm(has_bias=False), c.rope(pairs="neighbours")
    windows = c.windows(c.get("sliding_window_pattern", 4))
    mixers = [c.attention(rope if w else None, window=w, **c.biases()) for w in windows]
    scale = c.get("logit_scale")
    return c.pre_norm(mixers, c.gated(), norm, of_layers=PARALLEL, logit_scale=scale, ties=True)


def stablelm(c: Config) -> DecoderSpec:
    norm, is_parallel = c.layer_norm(), c.flag("use_parallel_residual")
    heads = HeadNorm(c.layer_norm(has_bias=False), over="each") if c.flag("qk_layernorm") else None
    mixer = c.attention(c.rope(part=0.25), has_bias=c.flag("use_qkv_bias"), head_norm=heads)
    return c.pre_norm(mixer, c.gated(), norm, of_layers=PARALLEL if is_parallel else {})


def phi(c: Config) -> DecoderSpec:
    norm, feed_forward = c.layer_norm(), c.plain("gelu_new", has_bias=True)
    head_norm = HeadNorm(norm) if c.flag("qk_layernorm") else None
    rope = c.rope(part=0.5)
    mixer = c.attention(rope, has_bias=True, has_output_bias=True, head_norm=head_norm)
    return c.pre_norm(mixer, feed_forward, norm, of_layers=PARALLEL, has_head_bias=True)


def gpt_neox(c: Config) -> DecoderSpec:
    """A parallel layer has two norms."""
    c.rope_parameters.setdefault("rope_theta", c.get("rotary_emb_base", 10000))
    rope, how = c.rope(part=c.get("rotary_pct", 0.25)), c.biases(default=True)
    mixer = c.attention(rope, num_kv_heads=c.num_heads, **how)
    layers = {"is_parallel": c.flag("use_parallel_residual", True)}
    return c.pre_norm(mixer, c.plain("gelu", has_bias=True), c.layer_norm(), of_layers=layers)


def gpt_bigcode(c: Config) -> DecoderSpec:
    c.one_of("multi_query", True)
    c.ignore("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32")
    return gpt2(c, "gelu_pytorch_tanh", num_kv_heads=1)


def gpt2(c: Config, activation: str = "gelu_new", num_kv_heads: int | None = None) -> DecoderSpec:
    c.one_of("add_cross_attention", False)
    c.hidden, heads, num_layers = c.count("n_embd"), c.count("n_head"), c.count("n_layer")
    known = ("gelu_new", "gelu_pytorch_tanh", "gelu", "relu")
    act = Activation(c.one_of("activation_function", activation, *known))
    size, norm = c.get("n_inner", 4 * c.hidden), c.layer_norm("layer_norm_epsilon")
    head_dim, divides = c.hidden // heads, c.flag("scale_attn_by_inverse_layer_idx")
    scale = head_dim**-0.5 if c.flag("scale_attn_weights", True) else 1.0
    scales = [scale / (i + 1 if divides else 1) for i in range(num_layers)]
    biases: dict[str, Any] = {"has_bias": True, "has_output_bias": True}
    kv_heads = num_kv_heads or heads
    mixers = [Attention(heads, kv_heads, head_dim, head_dim, s, None, **biases) for s in scales]
    feed_forward = FeedForward(size, act, is_gated=False, has_bias=True)
    num_positions = c.get("n_positions")
    return c.pre_norm(mixers, feed_forward, norm, ties=True, num_positions=num_positions)
