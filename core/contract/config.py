"""ModelConfig and EngineConfig: what the operator chooses. Frozen."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Device: TypeAlias = Literal["auto", "cpu", "cuda"]
DType: TypeAlias = Literal["auto", "float32", "bfloat16", "float16"]
KVCacheDType: TypeAlias = Literal["auto", "fp8", "int8"]
Quantization: TypeAlias = Literal["none", "int8", "int4", "fp8"]
GgufMix: TypeAlias = Literal["q4_k_m", "q5_k_m", "q6_k", "q8_0", "bf16", "f16", "f32"]
Task: TypeAlias = Literal["auto", "generate", "embed", "score"]
Pooling: TypeAlias = Literal["auto", "cls", "last", "max", "mean"]
AttentionBackendName: TypeAlias = Literal["auto", "cpu", "torch", "triton"]


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Source of the weights and the tokenizer, and the types of the weights.

    ``model`` is a hub id, a directory in Hugging Face format, a GGUF file or a directory of one, or
    a torch state-dict file (which needs ``config`` and ``tokenizer``); None is the built-in model.
    ``gguf_file`` is the name of a GGUF file in that directory or hub repository.
    ``quantization`` is the storage type of the linear layers; none is ``dtype``. ``task`` is what
    the model does with a text; auto: what its checkpoint says.

    ``pooling`` is how an embedding model makes a vector of a text's states; auto: what the
    checkpoint says, else a guess that is logged. ``matryoshka_dimensions`` are the sizes to which
    its vectors may be cut; empty: any, None: what the checkpoint or its name says. ``score_tokens``
    are the words of a causal model whose logits make a score: that of a match and that of none.
    """

    model: str | None = None
    gguf_file: str | None = None
    config: str | None = None
    tokenizer: str | None = None
    chat_template: str | None = None
    device: Device = "auto"
    dtype: DType = "auto"
    trust_remote_code: bool = False
    quantization: Quantization = "none"
    task: Task = "auto"
    pooling: Pooling = "auto"
    matryoshka_dimensions: tuple[int, ...] | None = None
    score_tokens: tuple[str, str] | None = None


class GrammarLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the cost of grammars.

    A grammar may take ``timeout`` seconds of CPU time and ``memory`` bytes to compile. Compiled
    grammars that are kept for later requests take ``cache_memory`` bytes together.
    """

    timeout: float = 2.0
    memory: int = 512 * 2**20
    cache_memory: int = 256 * 2**20


_GRAMMARS = GrammarLimits()


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the engine. None is derived from the model and the machine.

    ``max_model_len``, ``max_num_batched_tokens``, ``prefill_chunk_size`` and ``block_size`` count
    tokens; ``kv_cache_memory`` counts bytes. ``max_step_ms`` bounds the expected duration of a step
    that computes prompts beside streams, and ``prefill_chunk_size`` the prompt tokens of it.
    ``seed`` seeds the engine's generator, which draws a seed for each request without one.
    ``attention_backend`` is a name of core.attention.base; auto is the device's default.

    On CUDA ``gpu_memory_utilization`` is the fraction of the device's memory for weights, KV cache
    and steps together, if ``kv_cache_memory`` is None. With ``enforce_eager`` no step runs as CUDA
    graphs; with ``async_scheduling`` a step is launched before the last one is collected.
    ``kv_cache_dtype`` is the type of keys and values; auto is the model's type, fp8 needs CUDA, and
    int8 a CPU.

    ``grammar_timeout``, ``grammar_memory`` and ``grammar_cache_memory`` are
    the fields of GrammarLimits.

    ``threads`` is the number of CPU threads that compute; None leaves torch's own, which is
    ``OMP_NUM_THREADS``.
    """

    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int | None = None
    prefill_chunk_size: int | None = None
    max_step_ms: float | None = None
    block_size: int = 16
    kv_cache_memory: int | None = None
    kv_cache_dtype: KVCacheDType = "auto"
    gpu_memory_utilization: float = 0.9
    enforce_eager: bool = False
    async_scheduling: bool = True
    enable_prefix_caching: bool = True
    seed: int | None = None
    attention_backend: AttentionBackendName = "auto"
    threads: int | None = None
    grammar_timeout: float = _GRAMMARS.timeout
    grammar_memory: int = _GRAMMARS.memory
    grammar_cache_memory: int = _GRAMMARS.cache_memory

    @property
    def grammar_limits(self) -> GrammarLimits:
        """``grammar_timeout``, ``grammar_memory`` and ``grammar_cache_memory`` as one value."""
        return GrammarLimits(
            timeout=self.grammar_timeout,
            memory=self.grammar_memory,
            cache_memory=self.grammar_cache_memory,
        )
