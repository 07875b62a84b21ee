"""Tiny twins of configurations: small sizes, short windows and RoPE lengths, a large epsilon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "moe_intermediate_size": 32,
    "num_experts_per_tok": 2,
    "num_local_experts": 6,
    "num_experts": 6,
    **dict.fromkeys(
        ("rms_norm_eps", "layer_norm_eps", "norm_eps", "norm_epsilon", "layer_norm_epsilon"), 0.01
    ),
}
"""Sizes of all cases; a case sets those that its configuration class has."""

SLIDING, FULL = "sliding_attention", "full_attention"
HYBRID: dict[str, Any] = {"sliding_window": 7, "layer_types": [SLIDING, FULL] * 2}
WINDOWS: dict[str, Any] = {"use_sliding_window": True, **HYBRID}
BIASES: dict[str, Any] = {"attention_bias": True, "mlp_bias": True}
PLAIN: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4}
HALF = {"rope_parameters": {**PLAIN, "partial_rotary_factor": 0.5}}
LINEAR = {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}
YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 8.0,
    "original_max_position_embeddings": 32,
}
LLAMA3 = {**YARN, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONG: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "partial_rotary_factor": 0.75,
    "original_max_position_embeddings": 32,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
    "long_factor": [1.0, 1.5, 2.0, 3.0, 5.0, 8.0],
}
PHI3 = {
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "rope_parameters": LONG,
    "original_max_position_embeddings": 32,  # the class would put its default into LONG
}
SCALES = {
    "embedding_multiplier": 3.0,
    "logits_scaling": 2.0,
    "residual_multiplier": 0.7,
    "attention_multiplier": 0.2,
}
GROUPS: dict[str, Any] = {
    "n_routed_experts": 8,
    "n_group": 4,
    "topk_group": 2,
    "num_experts_per_tok": 3,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
}
SHARED: dict[str, Any] = {**GROUPS, "n_shared_experts": 2, "first_k_dense_replace": 1}
LATENT: dict[str, Any] = {
    **SHARED,
    "kv_lora_rank": 20,
    "q_lora_rank": 28,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 12,
    "v_head_dim": 10,
    "num_key_value_heads": 4,
    "head_dim": 8,
}
GEMMA4: dict[str, Any] = {
    **HYBRID,
    "global_head_dim": 24,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 97,
    "final_logit_softcapping": 3.0,
}


def each_kind(full: dict[str, Any]) -> dict[str, Any]:
    """RoPE of layers without and with a window."""
    return {"rope_parameters": {FULL: full, SLIDING: PLAIN}}


@dataclass(frozen=True, slots=True)
class Case:
    """A twin: the fields in which it differs from its class's defaults and from SIZES."""

    family: str
    fields: dict[str, Any]
    max_model_len: int = 256
    lengths: tuple[int, ...] = (3, 20, 70)  # of prompts


CASES = [
    Case("apertus", {"attention_bias": True, "rope_parameters": LLAMA3}),
    Case("arcee", BIASES),
    Case("cohere2", {**HYBRID, "attention_bias": True, "logit_scale": 0.3}),
    Case("cwm", {**HYBRID, "mlp_bias": True, "rope_parameters": LLAMA3}),
    Case("deepseek_v3", {**LATENT, "rope_parameters": {**YARN, "mscale_all_dim": 1.0}}),
    Case("deepseek_v3", {**LATENT, "q_lora_rank": None, "rope_interleave": False}),
    Case("dots1", {**SHARED, **HYBRID, "attention_bias": True}),
    Case("ernie4_5", {"use_bias": True}),
    Case("ernie4_5_moe", {"moe_num_experts": 6, "moe_k": 2, "use_bias": True}),
    Case("exaone", {}),
    Case("exaone4", HYBRID),
    Case("exaone4", {"sliding_window": None, "layer_types": [FULL] * 4}),
    Case("gemma", {"attention_bias": True}),
    Case("gemma2", {**HYBRID, "query_pre_attn_scalar": 20, "attn_logit_softcapping": 2.0}),
    Case("gemma3_text", {**HYBRID, "query_pre_attn_scalar": 20, **each_kind(LINEAR)}),
    Case("gemma4_text", {**GEMMA4, "num_kv_shared_layers": 2, "use_double_wide_mlp": True}),
    Case("gemma4_text", {**GEMMA4, "attention_k_eq_v": True, "num_global_key_value_heads": 1}),
    Case("gemma4_text", {**GEMMA4, "hidden_size_per_layer_input": 0}),
    Case("glm4", {**HALF, "attention_bias": True}),
    Case("glm4_moe", {**SHARED, "use_qk_norm": True, "attention_bias": True}),
    Case("gpt2", {"n_embd": 48, "n_layer": 4, "n_head": 4, "n_positions": 256}),
    Case("gpt2", {"n_embd": 48, "n_head": 4, "scale_attn_by_inverse_layer_idx": True}),
    Case("gpt_bigcode", {"n_embd": 48, "n_layer": 4, "n_head": 4, "n_positions": 256}),
    Case("gpt_neox", {}),
    Case("gpt_neox", {"use_parallel_residual": False, "attention_bias": False}),
    Case(
        "gpt_oss", {**HYBRID, "rms_norm_eps": 1.0, "rope_parameters": {**YARN, "truncate": False}}
    ),
    Case("granite", {**SCALES, **BIASES}),
    Case("granitemoe", SCALES),
    Case("hunyuan_v1_dense", {"attention_bias": True}),
    Case(
        "hunyuan_v1_dense",
        {"rope_parameters": {**PLAIN, "rope_type": "dynamic", "factor": 1.0, "alpha": 9.0}},
    ),
    Case("hunyuan_v1_moe", {"moe_topk": 2}),
    Case("internlm3", BIASES),
    Case("iquestcoder", {}),
    Case("llama", {}),
    Case("llama", {**BIASES, "rope_parameters": LLAMA3}),
    Case(
        "llama4_text", {"floor_scale": 8, "attention_chunk_size": 256, "no_rope_layers": [1, 0] * 2}
    ),
    Case("mellum", {**HYBRID, **each_kind(YARN)}),
    Case("mimo_v2_flash", {**HYBRID, "num_key_value_heads": 1, "v_head_dim": 12, **GROUPS}),
    Case("minimax_m2", HALF),
    Case("ministral", HYBRID),
    Case("ministral3", {"rope_parameters": {**YARN, "llama_4_scaling_beta": 0.3}}),
    Case("mistral", {"sliding_window": 7}),
    Case("mixtral", {"sliding_window": 7}),
    Case("nanochat", {"attention_bias": True}),
    Case("nemotron", {**HALF, **BIASES}),
    Case("olmo2", {"attention_bias": True}),
    Case("olmo3", {**HYBRID, **each_kind(YARN)}),
    Case("olmoe", {"clip_qkv": 1.0}),
    Case("phi", {**HALF, "qk_layernorm": True}),
    Case("phi3", {**PHI3, "sliding_window": 9}, lengths=(40, 70)),
    Case("phi3", PHI3, max_model_len=24, lengths=(3, 20)),
    Case("phi3", PHI3, lengths=(40, 70)),
    Case("qwen2", {**WINDOWS, "tie_word_embeddings": True}),
    Case("qwen2", {"rope_parameters": YARN}),
    Case("qwen2_moe", {"shared_expert_intermediate_size": 32, "mlp_only_layers": [1, 3]}),
    Case("qwen3", {**WINDOWS, "attention_bias": True}),
    Case("qwen3", {"tie_word_embeddings": True}),
    Case("qwen3_moe", {"norm_topk_prob": True, "decoder_sparse_step": 2}),
    Case("seed_oss", {"attention_out_bias": True, "mlp_bias": True}),
    Case("smollm3", {**WINDOWS, "no_rope_layers": [1, 1, 0, 1], "attention_bias": True}),
    Case("stablelm", {**HALF, "qk_layernorm": True, "use_qkv_bias": True}),
    Case("stablelm", {**HALF, "use_parallel_residual": True}),
    Case("starcoder2", {"sliding_window": 7}),
]

OLD_YARN = {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32}
OLD_NTK = {"alpha": 9.0, "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}
OLDER_FORMS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}}),
    ("llama", {"rope_theta": 5e5, "rope_scaling": {**LLAMA3, "rope_theta": 5e5}}),
    ("mistral", {"rope_theta": 1e6, "rope_scaling": None, "sliding_window": None}),
    ("qwen2", {"rope_theta": 1e6, "use_sliding_window": False, "max_window_layers": 2}),
    ("qwen2", {"rope_theta": 1e6, "rope_scaling": OLD_YARN, "use_sliding_window": False}),
    (
        "qwen3",
        {
            "rope_theta": 1e6,
            "use_sliding_window": False,
            "rope_scaling": {**OLD_YARN, "rope_type": "yarn"},
        },
    ),
    ("gemma2", {"rope_theta": 1e4, "cache_implementation": "hybrid", "hidden_act": "gelu"}),
    ("gemma3_text", {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 2}),
    ("gpt_neox", {"rotary_emb_base": 5e4, "rotary_pct": 0.5}),
    ("gpt_oss", {"rope_theta": 1e4, "rope_scaling": YARN, "experts_per_token": 2}),
    ("phi", {"rope_theta": 1e4, "partial_rotary_factor": 0.5, "num_key_value_heads": None}),
    ("phi3", {"rope_theta": 1e4, "rope_scaling": None, "original_max_position_embeddings": 64}),
    ("cohere2", {"rope_theta": 1e4, "sliding_window_pattern": 2}),
    ("deepseek_v3", {"rope_theta": 1e4, "scoring_func": "sigmoid", "topk_method": "noaux_tc"}),
    ("hunyuan_v1_dense", {"rope_theta": 1e4, "rope_scaling": {**OLD_NTK, "type": "dynamic"}}),
    ("minimax_m2", {"rope_theta": 1e4, "rotary_dim": 6, "scoring_func": "sigmoid"}),
    ("starcoder2", {"rope_theta": 1e4, "use_bias": True}),
]
"""Files without rope_parameters and layer_types, as older transformers wrote them."""
