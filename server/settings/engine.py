"""Flags of the model and the engine, which several commands share."""

from __future__ import annotations

from typing import get_args

from core.contract.config import (
    AttentionBackendName,
    Device,
    DType,
    KVCacheDType,
    Pooling,
    Quantization,
    Task,
)
from core.text.chat_templates import PAIR_TEMPLATE_NAMES, TEMPLATE_NAMES
from server.settings.flags import Flag, Switch, named
from server.settings.types import (
    OneOf,
    integer,
    path,
    positive,
    positive_number,
    share,
    size,
    sizes_or_any,
    threads,
    two_texts,
)

_NARROW = tuple(name for name in get_args(Quantization) if name != "none")

MODEL_FLAGS = named(
    gguf_file=Flag(
        "name of a GGUF file in the directory or hub repository of the model", metavar="NAME"
    ),
    config=Flag("directory or hub id of the config of a .pt state dict", path, metavar="PATH"),
    tokenizer=Flag("directory or hub id of the tokenizer", path, metavar="PATH"),
    chat_template=Flag(
        "Jinja file, the template itself, or a name: "
        + ", ".join((*TEMPLATE_NAMES, *PAIR_TEMPLATE_NAMES)),
        metavar="JINJA",
    ),
    device=Flag("where to run", OneOf(get_args(Device))),
    dtype=Flag(
        "type of weights and activations; auto: the checkpoint's, or float32 where that is faster",
        OneOf(get_args(DType), dict.fromkeys(_NARROW, "--quantization")),
    ),
    quantization=Flag(
        "store the weights of linear layers in 8 bits, with one scale a row, or in the mix of "
        "4 and 6 bits that GGUF calls Q4_K_M; int4 needs a CPU, fp8 CUDA",
        OneOf(get_args(Quantization)),
    ),
    trust_remote_code=Switch("run code that comes with the model"),
)

TASK_FLAGS = named(
    task=Flag(
        "what the model does with texts; auto: what its checkpoint says", OneOf(get_args(Task))
    ),
    pooling=Flag(
        "how a vector is made of a text's tokens; auto: what the checkpoint says, else the "
        "last token of causal models and the mean of others",
        OneOf(get_args(Pooling)),
    ),
    matryoshka_dimensions=Flag(
        "sizes to which vectors may be cut, or any, for models that are trained for it",
        sizes_or_any,
        metavar="any|N,...",
        unset="what the checkpoint says, or the name of a known model",
    ),
    score_tokens=Flag(
        "tokens of a causal reranker: the logit of the first less that of the second is the score",
        two_texts,
        metavar="TRUE,FALSE",
        unset="what the checkpoint says",
    ),
)
"""Only for ``serve``."""

ENGINE_FLAGS = named(
    max_model_len=Flag(
        "context length in tokens", positive, unset="the model's, or what memory has room for"
    ),
    max_num_seqs=Flag("sequences decoded together", positive, aliases=("max-batch-size",)),
    max_num_batched_tokens=Flag(
        "tokens computed in one step; longer prompts are computed in chunks",
        positive,
        unset="512 on cpu, 8192 on cuda",
    ),
    prefill_chunk_size=Flag(
        "most prompt tokens computed in one step while other sequences decode",
        positive,
        unset="as many as --max-step-ms allows",
    ),
    max_step_ms=Flag(
        "expected milliseconds of a step that computes prompts while other sequences decode; "
        "the tokens of a step follow from measured steps; for vectors and scores, of every step",
        positive_number,
        unset="50 on cpu (100 for vectors and scores), no limit on cuda",
    ),
    block_size=Flag("tokens in a block of the KV cache", positive),
    kv_cache_memory=Flag(
        "bytes for the KV cache, as 4GiB or 500MB", size, unset="from free memory"
    ),
    kv_cache_dtype=Flag(
        "type of the KV cache; auto: the model's; fp8 needs CUDA and the triton backend, "
        "int8 a CPU and the cpu backend",
        OneOf(get_args(KVCacheDType)),
    ),
    gpu_memory_utilization=Flag(
        "share of a GPU's memory for weights, activations and KV cache together", share
    ),
    enforce_eager=Switch("run no step as CUDA graphs"),
    async_scheduling=Switch(
        "on CUDA, read a step's tokens back before the next step is launched",
        name="no-async-scheduling",
    ),
    enable_prefix_caching=Switch(
        "do not reuse KV cache blocks of common prefixes",
        name="no-enable-prefix-caching",
        aliases=("no-prefix-cache",),
    ),
    attention_backend=Flag(
        "implementation of attention; auto: cpu on a CPU that can compile it, else torch; "
        "triton on CUDA",
        OneOf(get_args(AttentionBackendName)),
    ),
    threads=Flag(
        "CPU threads that compute",
        threads,
        metavar="N",
        unset="OMP_NUM_THREADS, or the physical cores that affinity and quota allow",
    ),
    grammar_timeout=Flag(
        "seconds of CPU time that the grammar of a request may take to compile",
        positive_number,
        metavar="SECONDS",
    ),
    grammar_memory=Flag("bytes of memory that the grammar of a request may take to compile", size),
    grammar_cache_memory=Flag("bytes of compiled grammars that are kept for later requests", size),
)

ENGINE_SEED = named(seed=Flag("makes the seeds drawn for requests without one repeatable", integer))
