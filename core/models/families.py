"""The table of families: which row reads a configuration, and which names its tensors have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from core.models import dense, mixtures, names
from core.models.config import Config
from core.models.names import LLAMA, Names
from core.models.rope import Undescribed
from core.models.spec import DecoderSpec

Row: TypeAlias = Callable[[Config], DecoderSpec]

FAMILIES: dict[str, tuple[Row, Names]] = {
    "apertus": (dense.apertus, names.APERTUS),
    "arcee": (dense.arcee, names.UNGATED),
    "cohere2": (dense.cohere2, LLAMA),
    "deepseek_v3": (mixtures.deepseek_v3, names.DEEPSEEK),
    "dots1": (mixtures.dots1, LLAMA),
    "ernie4_5": (dense.ernie4_5, LLAMA),
    "ernie4_5_moe": (mixtures.ernie4_5_moe, names.ERNIE_MOE),
    "exaone4": (dense.exaone4, names.POST_NORMS),
    "gemma2": (dense.gemma2, names.POST_NORMS),
    "gemma3_text": (dense.gemma3, names.POST_NORMS),
    "gemma4_text": (dense.gemma4, names.GEMMA4),
    "glm4": (dense.glm4, names.GLM4),
    "glm4_moe": (mixtures.glm4_moe, LLAMA),
    "gpt2": (dense.gpt2, names.GPT2),
    "gpt_neox": (dense.gpt_neox, names.GPT_NEOX),
    "gpt_oss": (mixtures.gpt_oss, names.GPT_OSS),
    "granite": (dense.granite, LLAMA),
    "granitemoe": (mixtures.granitemoe, names.GRANITEMOE),
    "hunyuan_v1_dense": (dense.hunyuan_v1_dense, names.HUNYUAN),
    "hunyuan_v1_moe": (mixtures.hunyuan_v1_moe, names.HUNYUAN),
    "llama": (dense.llama, LLAMA),
    "llama4_text": (mixtures.llama4, names.LLAMA4),
    "mimo_v2_flash": (mixtures.mimo_v2_flash, names.MIMO),
    "minimax_m2": (mixtures.minimax_m2, names.MIXTRAL),
    "ministral3": (dense.ministral3, LLAMA),
    "mistral": (dense.mistral, LLAMA),
    "mixtral": (mixtures.mixtral, names.MIXTRAL),
    "nanochat": (dense.nanochat, names.NANOCHAT),
    "nemotron": (dense.nemotron, names.UNGATED),
    "olmo2": (dense.olmo2, names.POST_NORMS),
    "olmo3": (dense.olmo3, names.POST_NORMS),
    "olmoe": (mixtures.olmoe, LLAMA),
    "phi": (dense.phi, names.PHI),
    "phi3": (dense.phi3, names.PHI3),
    "qwen2": (dense.qwen2, LLAMA),
    "qwen2_moe": (mixtures.qwen2_moe, names.QWEN2_MOE),
    "qwen3": (dense.qwen3, LLAMA),
    "qwen3_moe": (mixtures.qwen3_moe, LLAMA),
    "seed_oss": (dense.seed_oss, LLAMA),
    "smollm3": (dense.smollm3, LLAMA),
    "stablelm": (dense.stablelm, names.STABLELM),
    "starcoder2": (dense.starcoder2, names.STARCODER2),
}
"""By ``model_type``."""


def describe(values: Mapping[str, Any], max_model_len: int) -> tuple[DecoderSpec, Names]:
    """The spec of a configuration, for sequences up to a length, and the names of its tensors.

    Raises Undescribed, which names the key that no row knows.
    """
    family = str(values.get("model_type"))
    if family not in FAMILIES:
        raise Undescribed(f"model_type {family!r} has no row")
    row, table = FAMILIES[family]
    config = Config(values, max_model_len)
    spec = row(config)
    config.check_all_read()
    return spec, table
