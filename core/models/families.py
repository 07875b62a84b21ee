"""The table of families: which row reads a configuration, and which names its tensors have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from core.models import dense, mixtures, names
from core.models.checks import check_spec
from core.models.config import Config
from core.models.names import LLAMA, Names
from core.models.spec import DecoderSpec, NoRow, Undescribed


@dataclass(frozen=True, slots=True)
class Family:
    """``needs`` are keys that must be in a file: the family's class has defaults of its own."""

    row: Callable[[Config], DecoderSpec]
    names: Names
    needs: tuple[str, ...] = ()


FAMILIES = {
    "apertus": Family(dense.apertus, names.APERTUS),
    "arcee": Family(dense.arcee, names.UNGATED),
    "cohere2": Family(dense.cohere2, LLAMA),
    "cwm": Family(dense.cwm, LLAMA, ("head_dim",)),
    "deepseek_v3": Family(
        mixtures.deepseek_v3,
        names.DEEPSEEK,
        ("q_lora_rank", "n_group", "topk_group", "routed_scaling_factor"),
    ),
    "dots1": Family(mixtures.dots1, LLAMA, ("norm_topk_prob",)),
    "ernie4_5": Family(dense.ernie4_5, LLAMA, ("head_dim",)),
    "ernie4_5_moe": Family(mixtures.ernie4_5_moe, names.ERNIE_MOE),
    "exaone": Family(dense.llama, names.EXAONE, ("head_dim", "num_key_value_heads")),
    "exaone4": Family(dense.exaone4, names.POST_NORMS, ("sliding_window",)),
    "gemma": Family(dense.gemma, LLAMA, ("head_dim",)),
    "gemma2": Family(
        dense.gemma2,
        names.POST_NORMS,
        ("head_dim", "attn_logit_softcapping", "final_logit_softcapping"),
    ),
    "gemma3_text": Family(dense.gemma3, names.POST_NORMS, ("head_dim",)),
    "gemma4_text": Family(dense.gemma4, names.GEMMA4, ("head_dim", "hidden_size_per_layer_input")),
    "glm4": Family(dense.glm4, names.GLM4, ("head_dim", "attention_bias")),
    "glm4_moe": Family(
        mixtures.glm4_moe,
        LLAMA,
        ("n_group", "topk_group", "norm_topk_prob", "routed_scaling_factor"),
    ),
    "gpt2": Family(dense.gpt2, names.GPT2),
    "gpt_bigcode": Family(dense.gpt_bigcode, names.GPT_BIGCODE),
    "gpt_neox": Family(dense.gpt_neox, names.GPT_NEOX),
    "gpt_oss": Family(mixtures.gpt_oss, names.GPT_OSS, ("head_dim",)),
    "granite": Family(dense.granite, LLAMA),
    "granitemoe": Family(mixtures.granitemoe, names.GRANITEMOE),
    "hunyuan_v1_dense": Family(dense.hunyuan_v1_dense, names.HUNYUAN),
    "hunyuan_v1_moe": Family(mixtures.hunyuan_v1_moe, names.HUNYUAN),
    "internlm3": Family(dense.llama, LLAMA, ("head_dim", "num_key_value_heads")),
    "iquestcoder": Family(dense.llama, LLAMA, ("head_dim", "num_key_value_heads")),
    "llama": Family(dense.llama, LLAMA),
    "llama4_text": Family(mixtures.llama4, names.LLAMA4, ("head_dim",)),
    "mellum": Family(mixtures.mellum, LLAMA, ("head_dim",)),
    "mimo_v2_flash": Family(
        mixtures.mimo_v2_flash, names.MIMO, ("head_dim", "attention_value_scale")
    ),
    "minimax_m2": Family(mixtures.minimax_m2, names.MIXTRAL, ("head_dim",)),
    "ministral": Family(dense.ministral, LLAMA),
    "ministral3": Family(dense.ministral3, LLAMA, ("head_dim",)),
    "mistral": Family(dense.mistral, LLAMA, ("sliding_window",)),
    "mixtral": Family(mixtures.mixtral, names.MIXTRAL),
    "nanochat": Family(dense.nanochat, names.NANOCHAT, ("final_logit_softcapping",)),
    "nemotron": Family(dense.nemotron, names.UNGATED),
    "olmo2": Family(dense.olmo2, names.POST_NORMS),
    "olmo3": Family(dense.olmo3, names.POST_NORMS),
    "olmoe": Family(mixtures.olmoe, LLAMA),
    "phi": Family(dense.phi, names.PHI),
    "phi3": Family(dense.phi3, names.PHI3),
    "qwen2": Family(dense.qwen2, LLAMA),
    "qwen2_moe": Family(mixtures.qwen2_moe, names.QWEN2_MOE),
    "qwen3": Family(dense.qwen3, LLAMA, ("head_dim",)),
    "qwen3_moe": Family(mixtures.qwen3_moe, LLAMA),
    "seed_oss": Family(dense.seed_oss, LLAMA, ("head_dim",)),
    "smollm3": Family(dense.smollm3, LLAMA),
    "stablelm": Family(dense.stablelm, names.STABLELM),
    "starcoder2": Family(dense.starcoder2, names.STARCODER2),
}
"""Families by ``model_type``."""


def describe(values: Mapping[str, Any], max_model_len: int) -> tuple[DecoderSpec, Names]:
    """The spec of a configuration, for sequences up to a length, and the names of its tensors.

    Raises Undescribed, which names the key that no row knows.
    """
    name = str(values.get("model_type"))
    if name not in FAMILIES:
        raise NoRow(f"no row has the model_type {name!r}")
    family, config = FAMILIES[name], Config(values, max_model_len)
    config.need(*family.needs)
    try:
        spec = family.row(config)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise Undescribed(f"a value does not fit a configuration of {name}: {error}") from error
    config.check_all_read()
    check_spec(spec)
    return spec, family.names
