"""Names: where a checkpoint in Hugging Face format has the tensors of a spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from core.models.rope import Undescribed

Layout: TypeAlias = Literal["transposed", "interleaved", "by_head"]
"""What differs from a spec's rows: inputs come first; so, and gates and ups alternate; the rows of
queries, keys and values of each head follow each other."""

Found: TypeAlias = str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Names:
    """A table from roles to the names of tensors; those of a tuple are stacked along their rows.

    ``{e}`` counts experts or heads, one tensor each. The bias of a role that has no entry has the
    names of the role, with ``bias`` for ``weight``.
    """

    layer: Mapping[str, Found]
    top: Mapping[str, Found]
    layers: str = "model.layers.{i}."
    roots: tuple[str, ...] = ("",)  # beginnings of names; a file has one of them
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    ignored: tuple[str, ...] = ("rotary_emb.inv_freq",)  # endings of names without weights

    def renamed(self, table: Mapping[str, Found], **changes: Mapping[str, Layout]) -> Names:
        """The same with other names in layers."""
        return replace(self, layer={**self.layer, **table}, **changes)  # type: ignore[arg-type]

    def of(self, role: str, layer: int | None) -> tuple[str, ...]:
        """The names of a role's tensors, without root. Raises Undescribed."""
        table = self.top if layer is None else self.layer
        found = table.get(role)
        is_bias = found is None and role.endswith(".bias")
        if is_bias:
            found = table.get(role.removesuffix(".bias"))
        if found is None:
            raise Undescribed(f"the family has no name for {role}")
        names = (found,) if isinstance(found, str) else found
        if is_bias:
            names = tuple(name.removesuffix("weight") + "bias" for name in names)
        prefix = "" if layer is None else self.layers.format(i=layer)
        return tuple(prefix + name for name in names)


def _linears(place: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{place}.{name}.weight" for name in names)


def _mlp(place: str, prefix: str = "") -> dict[str, Found]:
    """The names of a gated feed-forward."""
    return {
        f"{prefix}up": _linears(place, "gate_proj", "up_proj"),
        f"{prefix}down": f"{place}.down_proj.weight",
    }


def _norms(**names: str) -> dict[str, Found]:
    return {role: f"{name}.weight" for role, name in names.items()}


LLAMA = Names(
    layer={
        **_norms(pre_mixer="input_layernorm", pre_feed_forward="post_attention_layernorm"),
        "qkv": _linears("self_attn", "q_proj", "k_proj", "v_proj"),
        "output": "self_attn.o_proj.weight",
        **_norms(query_norm="self_attn.q_norm", key_norm="self_attn.k_norm"),
        "sinks": "self_attn.sinks",
        **_mlp("mlp"),
        "router": "mlp.gate.weight",
        "choice_bias": "mlp.gate.e_score_correction_bias",
        **_mlp("mlp.experts.{e}", "experts_"),
        **_mlp("mlp.shared_experts", "shared_"),
    },
    top={
        "embedding": "model.embed_tokens.weight",
        "final_norm": "model.norm.weight",
        "head": "lm_head.weight",
    },
)
"""Most families have these."""

POST_NORMS = LLAMA.renamed(
    _norms(
        post_mixer="post_attention_layernorm",
        pre_feed_forward="pre_feedforward_layernorm",
        post_feed_forward="post_feedforward_layernorm",
    )
)
GEMMA4 = replace(
    POST_NORMS.renamed(
        {
            "query": "self_attn.q_proj.weight",
            "qk": _linears("self_attn", "q_proj", "k_proj"),
            "token_up": "per_layer_input_gate.weight",
            "token_down": "per_layer_projection.weight",
            "token_norm": "post_per_layer_input_norm.weight",
            "output_scale": "layer_scalar",
        }
    ),
    top={
        **LLAMA.top,
        "token_embedding": "model.embed_tokens_per_layer.weight",
        "token_projection": "model.per_layer_model_projection.weight",
        "token_norm": "model.per_layer_projection_norm.weight",
    },
)
GLM4 = LLAMA.renamed(
    {
        "up": "mlp.gate_up_proj.weight",
        **_norms(post_mixer="post_self_attn_layernorm", post_feed_forward="post_mlp_layernorm"),
    }
)
PHI3 = LLAMA.renamed({"qkv": "self_attn.qkv_proj.weight", "up": "mlp.gate_up_proj.weight"})
UNGATED = LLAMA.renamed({"up": "mlp.up_proj.weight"})
STARCODER2 = LLAMA.renamed({"up": "mlp.c_fc.weight", "down": "mlp.c_proj.weight"})
NANOCHAT = LLAMA.renamed({"up": "mlp.fc1.weight", "down": "mlp.fc2.weight"})
HUNYUAN = LLAMA.renamed(
    {
        **_norms(query_norm="self_attn.query_layernorm", key_norm="self_attn.key_layernorm"),
        "router": "mlp.gate.wg.weight",
        **_mlp("mlp.shared_mlp", "shared_"),
    }
)
STABLELM = LLAMA.renamed(
    _norms(
        query_norm="self_attn.q_layernorm.norms.{e}",
        key_norm="self_attn.k_layernorm.norms.{e}",
    )
)
PHI = replace(
    NANOCHAT.renamed(
        {
            "output": "self_attn.dense.weight",
            **_norms(query_norm="self_attn.q_layernorm", key_norm="self_attn.k_layernorm"),
        }
    ),
    top={**LLAMA.top, "final_norm": "model.final_layernorm.weight"},
)
APERTUS = replace(
    UNGATED.renamed(
        {
            **_norms(pre_mixer="attention_layernorm", pre_feed_forward="feedforward_layernorm"),
            "slopes": ("mlp.act_fn.alpha_p", "mlp.act_fn.alpha_n"),
        }
    ),
    ignored=("act_fn.beta", "act_fn.eps"),
)
QWEN2_MOE = LLAMA.renamed(
    {**_mlp("mlp.shared_expert", "shared_"), "shared_gate": "mlp.shared_expert_gate.weight"}
)
MIXTRAL = LLAMA.renamed(
    {
        "router": "block_sparse_moe.gate.weight",
        "choice_bias": "block_sparse_moe.e_score_correction_bias",
        "experts_up": _linears("block_sparse_moe.experts.{e}", "w1", "w3"),
        "experts_down": "block_sparse_moe.experts.{e}.w2.weight",
    }
)
GRANITEMOE = LLAMA.renamed(
    {
        "router": "block_sparse_moe.router.layer.weight",
        "experts_up": "block_sparse_moe.input_linear.weight",
        "experts_down": "block_sparse_moe.output_linear.weight",
    }
)
MIMO = LLAMA.renamed({"sinks": "self_attn.attention_sink_bias"})
ERNIE_MOE = LLAMA.renamed({"choice_bias": "mlp.moe_statics.e_score_correction_bias"})
GPT_OSS = LLAMA.renamed(
    {
        "router": "mlp.router.weight",
        "experts_up": "mlp.experts.gate_up_proj",
        "experts_up.bias": "mlp.experts.gate_up_proj_bias",
        "experts_down": "mlp.experts.down_proj",
        "experts_down.bias": "mlp.experts.down_proj_bias",
    },
    layouts={"experts_up": "interleaved", "experts_down": "transposed"},
)
LLAMA4 = LLAMA.renamed(
    {
        **_mlp("feed_forward"),
        **_mlp("feed_forward.shared_expert", "shared_"),
        "router": "feed_forward.router.weight",
        "experts_up": "feed_forward.experts.gate_up_proj",
        "experts_down": "feed_forward.experts.down_proj",
    },
    layouts={"experts_up": "transposed", "experts_down": "transposed"},
)
DEEPSEEK = LLAMA.renamed(
    {
        "query": "self_attn.q_proj.weight",
        "query_down": "self_attn.q_a_proj.weight",
        "query_norm": "self_attn.q_a_layernorm.weight",
        "query_up": "self_attn.q_b_proj.weight",
        "kv_down": "self_attn.kv_a_proj_with_mqa.weight",
        "kv_norm": "self_attn.kv_a_layernorm.weight",
        "kv_up": "self_attn.kv_b_proj.weight",
    }
)
GPT2 = Names(
    layer={
        **_norms(pre_mixer="ln_1", pre_feed_forward="ln_2"),
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
    ignored=("attn.bias", "attn.masked_bias"),
)
GPT_NEOX = Names(
    layer={
        **_norms(pre_mixer="input_layernorm", pre_feed_forward="post_attention_layernorm"),
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
    ignored=("attention.bias", "attention.masked_bias", "rotary_emb.inv_freq"),
)
