"""EngineConfig: every number that the engine needs and the operator may choose. Frozen."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Device: TypeAlias = Literal["auto", "cpu", "cuda"]
DType: TypeAlias = Literal["auto", "float32", "bfloat16", "float16"]
KVCacheDType: TypeAlias = Literal["auto", "fp8"]
Quantization: TypeAlias = Literal["none", "int8", "fp8"]
AttentionBackendName: TypeAlias = Literal["auto", "cpu", "torch", "triton"]


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where the weights and the tokenizer come from and how they are held.

    ``model`` is a hub id, a directory in Hugging Face format, or a torch state-dict file (which
    needs ``config`` and ``tokenizer``); None is the built-in model. ``quantization`` is what the
    matrices are stored in, if not in ``dtype``.
    """

    model: str | None = None
    config: str | None = None
    tokenizer: str | None = None
    chat_template: str | None = None
    device: Device = "auto"
    dtype: DType = "auto"
    trust_remote_code: bool = False
    quantization: Quantization = "none"


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the engine. None means: decide from the model and the machine.

    ``max_model_len``, ``max_num_batched_tokens``, ``prefill_chunk_size`` and ``block_size`` count
    tokens; ``kv_cache_memory`` counts bytes. ``seed`` makes requests without a seed of their own
    repeatable as a sequence. ``attention_backend`` is a name of core.attention.base, or auto.

    On CUDA ``gpu_memory_utilization`` is the part of the device's memory that everything together
    may take, if ``kv_cache_memory`` is not given. With ``enforce_eager`` decode steps do not run
    as CUDA graphs; with ``async_scheduling`` a step is launched before the last one is collected.
    ``kv_cache_dtype`` is the type of keys and values in the cache; auto is the model's type.
    """

    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int | None = None
    prefill_chunk_size: int | None = None
    block_size: int = 16
    kv_cache_memory: int | None = None
    kv_cache_dtype: KVCacheDType = "auto"
    gpu_memory_utilization: float = 0.9
    enforce_eager: bool = False
    async_scheduling: bool = True
    enable_prefix_caching: bool = True
    seed: int | None = None
    attention_backend: AttentionBackendName = "auto"
