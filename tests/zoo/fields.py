"""Small values for the fields of configurations."""

from __future__ import annotations

from typing import Any

HIDDEN = 64
CONTEXT = 256

SIZES: dict[str, Any] = {
    **dict.fromkeys(
        [
            *("hidden_size", "n_embd", "d_model", "dim", "n_embed", "embed_dim", "embedding_size"),
            *("word_embed_proj_dim", "attention_hidden_size", "lru_width", "decoder_hidden_size"),
        ],
        HIDDEN,
    ),
    **dict.fromkeys(
        [
            *("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
            *("decoder_layers", "encoder_layers", "num_decoder_layers", "num_encoder_layers"),
        ],
        2,
    ),
    **dict.fromkeys(
        [
            *("num_attention_heads", "n_head", "num_heads", "n_heads"),
            *("decoder_attention_heads", "encoder_attention_heads", "num_decoder_attention_heads"),
            *("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
        ],
        4,
    ),
    **dict.fromkeys(
        [
            *("num_key_value_heads", "num_kv_heads", "multi_query_group_num"),
            *("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts", "n_mamba_heads"),
            *("mamba_expand", "linear_num_key_heads", "swa_num_key_value_heads"),
        ],
        2,
    ),
    **dict.fromkeys(
        ["n_group", "topk_group", "n_shared_experts", "mamba_n_groups", "n_groups"],
        1,
    ),
    **dict.fromkeys(
        [
            *("intermediate_size", "n_inner", "ffn_dim", "decoder_ffn_dim", "encoder_ffn_dim"),
            *("ffn_hidden_size", "inner_dim", "d_ff", "hidden_dim", "intermediate_size_mlp"),
            *("dense_intermediate_size",),
        ],
        96,
    ),
    **dict.fromkeys(
        [
            *(
                "moe_intermediate_size",
                "shared_expert_intermediate_size",
                "shared_intermediate_size",
            ),
            *("expert_ffn_hidden_size",),
        ],
        48,
    ),
    **dict.fromkeys(
        [
            *("head_dim", "kv_channels", "attention_head_size", "v_head_dim", "global_head_dim"),
            *("qk_nope_head_dim", "qk_rope_head_dim", "swa_head_dim", "swa_v_head_dim"),
            *("linear_key_head_dim", "linear_value_head_dim"),
            *("mamba_d_state", "ssm_state_size", "state_size", "mamba_head_dim", "mamba_d_head"),
            *("chunk_size", "mamba_chunk_size"),
        ],
        16,
    ),
    **dict.fromkeys(["q_lora_rank", "kv_lora_rank", "o_lora_rank"], 24),
    **dict.fromkeys(
        ["mamba_num_heads", "mamba_n_heads", "time_step_rank", "mamba_dt_rank", "laurel_rank"], 8
    ),
    **dict.fromkeys(
        [
            *("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"),
            *("max_sequence_length", "max_target_positions"),
        ],
        CONTEXT,
    ),
    "vocab_size": 211,
    "unpadded_vocab_size": 211,
    "vocab_size_per_layer_input": 211,
    "hidden_size_per_layer_input": 8,
    "linear_num_value_heads": 4,
    "mamba_d_ssm": 128,
    "rotary_dim": 8,
    "conv_kernel": 4,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "num_kv_shared_layers": 0,
}
"""By name of the field; only fields that a family has and that are not None are set."""

_LATENT: dict[str, Any] = {"num_key_value_heads": 4}
"""Latent attention: all query heads share what is cached, each has its own keys."""

_DECODER: dict[str, Any] = {"is_decoder": True}
"""Families that are encoders by default."""

FAMILIES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        [
            *("axk1", "axk2", "bailing_hybrid", "deepseek_v3", "deepseek_v32"),
            *("dots3_note_text", "glm4_moe_lite", "glm_moe_dsa", "longcat_flash"),
            *("minicpm3", "sarvam_mla", "youtu"),
        ],
        _LATENT,
    ),
    **dict.fromkeys(
        [
            *("bert", "bert-generation", "big_bird", "bigbird_pegasus", "camembert", "electra"),
            *("data2vec-text", "ernie", "megatron-bert", "reformer", "rembert", "roberta"),
            *("roberta-prelayernorm", "roc_bert", "roformer", "xlm-roberta", "xlm-roberta-xl"),
        ],
        _DECODER,
    ),
    "bamba": {"attn_layer_indices": [1], "mamba_d_head": 16},
    "bitnet": {"num_key_value_heads": 2},
    "cohere_compass_text": {
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 10000.0}
            for kind in ("full_attention", "sliding_attention")
        },
    },
    "dbrx": {"attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0}},
    "deepseek_v2": {"num_key_value_heads": 4, "num_experts_per_tok": 2, "topk_method": "greedy"},
    "dory": {
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "num_hidden_layers": 3,
        "n_input_layers": 1,
        "n_output_layers": 1,
    },
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "gemma3n_text": {"activation_sparsity_pattern": [0.5, 0.0]},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 16},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"], "mamba_d_head": 16},
    "glm_moe_dsa": {"num_key_value_heads": 4, "index_topk": 256},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16, "num_experts": 4, "moe_topk": 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": {"num_key_value_heads": 4, "num_experts": 4, "num_experts_per_token": 2},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "mamba2": {"num_heads": 8, "head_dim": 16},
    "ministral": {"head_dim": 16},
    "nemotron": {"num_key_value_heads": 2},
    "reformer": {"is_decoder": True, "axial_pos_embds": False},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"], "attention_window_size": 16},
    "xmod": {"is_decoder": True, "languages": ["en_XX"], "default_language": "en_XX"},
    "zamba": {
        "layers_block_type": ["linear_attention", "hybrid", "hybrid"],
        "num_hidden_layers": 3,
        "num_key_value_heads": 4,
    },
    "zamba2": {
        "layers_block_type": ["linear_attention", "hybrid", "hybrid"],
        "num_hidden_layers": 3,
        "num_key_value_heads": 4,
        "mamba_ngroups": 1,
        "n_mamba_heads": 8,
    },
    "zaya": {"num_experts_per_tok": 1},
}
"""What a family needs beyond that."""
