"""Names: where a checkpoint in Hugging Face format has the tensors of a spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from core.models.spec import Undescribed

Layout: TypeAlias = Literal["transposed", "interleaved", "by_head"]
"""Differences from a spec's rows.

"transposed": inputs come first. "interleaved": so, and gates and ups alternate. "by_head": the rows
of queries, keys and values of each head follow each other.
"""


@dataclass(frozen=True, slots=True)
class Names:
    """A table from roles to the names of tensors.

    ``a.[b,c].d`` are two tensors, stacked along their rows; ``{e}`` counts experts or heads, one
    tensor each. A bias without an entry has the name of its matrix with ``bias`` for ``weight``.
    """

    layer: Mapping[str, str]
    top: Mapping[str, str]
    layers: str = "model.layers.{i}."
    roots: tuple[str, ...] = ("",)  # beginnings of names; a file has one of them
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    ignored: tuple[str, ...] = ("rotary_emb.inv_freq",)  # endings of names without weights

    def renamed(self, layouts: Mapping[str, Layout] | None = None, **layer: str) -> Names:
        """The same with other names in layers."""
        return replace(self, layer={**self.layer, **layer}, layouts=layouts or self.layouts)

    def of(self, role: str, layer: int | None) -> list[str]:
        """The names of a role's tensors, without root. Raises Undescribed."""
        table = self.top if layer is None else self.layer
        name = table.get(role)
        if name is None and role.endswith("_bias") and role.removesuffix("_bias") in table:
            name = table[role.removesuffix("_bias")].removesuffix("weight") + "bias"
        if name is None:
            raise Undescribed(f"the family has no name for {role}")
        prefix = "" if layer is None else self.layers.format(i=layer)
        before, _, rest = name.partition("[")
        choices, _, after = rest.rpartition("]")
        parts = [before + choice + after for choice in choices.split(",")] if rest else [name]
        return [prefix + part for part in parts]


LLAMA = Names(
    layer={
        "pre_mixer": "input_layernorm.weight",
        "pre_feed_forward": "post_attention_layernorm.weight",
        "qkv": "self_attn.[q,k,v]_proj.weight",
        "query": "self_attn.q_proj.weight",
        "output": "self_attn.o_proj.weight",
        "query_norm": "self_attn.q_norm.weight",
        "key_norm": "self_attn.k_norm.weight",
        "sinks": "self_attn.sinks",
        "up": "mlp.[gate,up]_proj.weight",
        "down": "mlp.down_proj.weight",
        "router": "mlp.gate.weight",
        "choice_bias": "mlp.gate.e_score_correction_bias",
        "experts_up": "mlp.experts.{e}.[gate,up]_proj.weight",
        "experts_down": "mlp.experts.{e}.down_proj.weight",
        "shared_up": "mlp.shared_experts.[gate,up]_proj.weight",
        "shared_down": "mlp.shared_experts.down_proj.weight",
    },
    top={
        "embedding": "model.embed_tokens.weight",
        "final_norm": "model.norm.weight",
        "head": "lm_head.weight",
    },
)
"""Most families have these."""

POST_NORMS = LLAMA.renamed(
    post_mixer="post_attention_layernorm.weight",
    pre_feed_forward="pre_feedforward_layernorm.weight",
    post_feed_forward="post_feedforward_layernorm.weight",
)
GEMMA4 = replace(
    POST_NORMS.renamed(
        qk="self_attn.[q,k]_proj.weight",
        input_up="per_layer_input_gate.weight",
        input_down="per_layer_projection.weight",
        input_norm="post_per_layer_input_norm.weight",
        output_scale="layer_scalar",
    ),
    top={
        **LLAMA.top,
        "input_embedding": "model.embed_tokens_per_layer.weight",
        "input_projection": "model.per_layer_model_projection.weight",
        "input_norm": "model.per_layer_projection_norm.weight",
    },
)
GLM4 = LLAMA.renamed(
    up="mlp.gate_up_proj.weight",
    post_mixer="post_self_attn_layernorm.weight",
    post_feed_forward="post_mlp_layernorm.weight",
)
PHI3 = LLAMA.renamed(qkv="self_attn.qkv_proj.weight", up="mlp.gate_up_proj.weight")
UNGATED = LLAMA.renamed(up="mlp.up_proj.weight")
STARCODER2 = LLAMA.renamed(up="mlp.c_fc.weight", down="mlp.c_proj.weight")
NANOCHAT = LLAMA.renamed(up="mlp.fc1.weight", down="mlp.fc2.weight")
HUNYUAN = LLAMA.renamed(
    query_norm="self_attn.query_layernorm.weight",
    key_norm="self_attn.key_layernorm.weight",
    router="mlp.gate.wg.weight",
    shared_up="mlp.shared_mlp.[gate,up]_proj.weight",
    shared_down="mlp.shared_mlp.down_proj.weight",
)
STABLELM = LLAMA.renamed(
    query_norm="self_attn.q_layernorm.norms.{e}.weight",
    key_norm="self_attn.k_layernorm.norms.{e}.weight",
)
PHI = replace(
    NANOCHAT.renamed(
        output="self_attn.dense.weight",
        query_norm="self_attn.q_layernorm.weight",
        key_norm="self_attn.k_layernorm.weight",
    ),
    top={**LLAMA.top, "final_norm": "model.final_layernorm.weight"},
)
APERTUS = replace(
    UNGATED.renamed(
        pre_mixer="attention_layernorm.weight",
        pre_feed_forward="feedforward_layernorm.weight",
        slopes="mlp.act_fn.alpha_[p,n]",
    ),
    ignored=("act_fn.beta", "act_fn.eps"),
)
QWEN2_MOE = LLAMA.renamed(
    shared_up="mlp.shared_expert.[gate,up]_proj.weight",
    shared_down="mlp.shared_expert.down_proj.weight",
    shared_gate="mlp.shared_expert_gate.weight",
)
MIXTRAL = LLAMA.renamed(
    router="block_sparse_moe.gate.weight",
    choice_bias="block_sparse_moe.e_score_correction_bias",
    experts_up="block_sparse_moe.experts.{e}.w[1,3].weight",
    experts_down="block_sparse_moe.experts.{e}.w2.weight",
)
GRANITEMOE = LLAMA.renamed(
    router="block_sparse_moe.router.layer.weight",
    experts_up="block_sparse_moe.input_linear.weight",
    experts_down="block_sparse_moe.output_linear.weight",
)
MIMO = LLAMA.renamed(sinks="self_attn.attention_sink_bias")
ERNIE_MOE = LLAMA.renamed(choice_bias="mlp.moe_statics.e_score_correction_bias")
GPT_OSS = LLAMA.renamed(
    {"experts_up": "interleaved", "experts_down": "transposed"},
    router="mlp.router.weight",
    experts_up="mlp.experts.gate_up_proj",
    experts_up_bias="mlp.experts.gate_up_proj_bias",
    experts_down="mlp.experts.down_proj",
    experts_down_bias="mlp.experts.down_proj_bias",
)
LLAMA4 = LLAMA.renamed(
    {"experts_up": "transposed", "experts_down": "transposed"},
    up="feed_forward.[gate,up]_proj.weight",
    down="feed_forward.down_proj.weight",
    router="feed_forward.router.weight",
    experts_up="feed_forward.experts.gate_up_proj",
    experts_down="feed_forward.experts.down_proj",
    shared_up="feed_forward.shared_expert.[gate,up]_proj.weight",
    shared_down="feed_forward.shared_expert.down_proj.weight",
)
DEEPSEEK = LLAMA.renamed(
    query_down="self_attn.q_a_proj.weight",
    query_norm="self_attn.q_a_layernorm.weight",
    query_up="self_attn.q_b_proj.weight",
    kv_down="self_attn.kv_a_proj_with_mqa.weight",
    kv_norm="self_attn.kv_a_layernorm.weight",
    kv_up="self_attn.kv_b_proj.weight",
)
GPT2 = Names(
    layer={
        "pre_mixer": "ln_1.weight",
        "pre_feed_forward": "ln_2.weight",
        "qkv": "attn.c_attn.weight",
        "output": "attn.c_proj.weight",
        "up": "mlp.c_fc.weight",
        "down": "mlp.c_proj.weight",
    },
    top={
        "embedding": "wte.weight",
        "positions": "wpe.weight",
        "final_norm": "ln_f.weight",
        "head": "lm_head.weight",
    },
    layers="h.{i}.",
    roots=("transformer.", ""),
    layouts=dict.fromkeys(("qkv", "output", "up", "down"), "transposed"),
    ignored=(".attn.bias", ".attn.masked_bias"),
)
EXAONE = Names(
    layer={
        "pre_mixer": "ln_1.weight",
        "pre_feed_forward": "ln_2.weight",
        "qkv": "attn.attention.[q,k,v]_proj.weight",
        "output": "attn.attention.out_proj.weight",
        "up": "mlp.c_fc_[0,1].weight",
        "down": "mlp.c_proj.weight",
    },
    top={
        "embedding": "transformer.wte.weight",
        "final_norm": "transformer.ln_f.weight",
        "head": "lm_head.weight",
    },
    layers="transformer.h.{i}.",
)
GPT_BIGCODE = replace(GPT2, layouts={})
GPT_NEOX = Names(
    layer={
        "pre_mixer": "input_layernorm.weight",
        "pre_feed_forward": "post_attention_layernorm.weight",
        "qkv": "attention.query_key_value.weight",
        "output": "attention.dense.weight",
        "up": "mlp.dense_h_to_4h.weight",
        "down": "mlp.dense_4h_to_h.weight",
    },
    top={
        "embedding": "gpt_neox.embed_in.weight",
        "final_norm": "gpt_neox.final_layer_norm.weight",
        "head": "embed_out.weight",
    },
    layers="gpt_neox.layers.{i}.",
    layouts={"qkv": "by_head"},
    ignored=(".attention.bias", ".attention.masked_bias", "rotary_emb.inv_freq"),
)
