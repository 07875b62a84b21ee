"""Flags of the model and the engine, which ``serve`` and ``bench`` share.

An alias is the name that a flag has in the program that roseinfer descends from.

Flags of the parsers of answers.
"""

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
from server.parsers.reasoning import THINKING_TAGS
from server.parsers.tool import TOOL_PARSERS
from server.settings.flags import Flag, Switch
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

DEFAULT_TOKENIZER_WORKERS = 2

_NARROW = tuple(name for name in get_args(Quantization) if name != "none")

TOKENIZER = Flag(
    name="tokenizer", help="directory or hub id of the tokenizer", convert=path, metavar="PATH"
)
CHAT_TEMPLATE = Flag(
    name="chat-template",
    help="Jinja file, the template itself, or a name: "
    + ", ".join((*TEMPLATE_NAMES, *PAIR_TEMPLATE_NAMES)),
    metavar="JINJA",
)
TRUST_REMOTE_CODE = Switch(name="trust-remote-code", help="run code that comes with the model")

MODEL_FLAGS = (
    Flag(
        name="gguf-file",
        help="name of a GGUF file in the directory or hub repository of the model",
        metavar="NAME",
    ),
    Flag(
        name="config",
        help="directory or hub id of the config of a .pt state dict",
        convert=path,
        metavar="PATH",
    ),
    TOKENIZER,
    CHAT_TEMPLATE,
    Flag(name="device", help="where to run", convert=OneOf(get_args(Device))),
    Flag(
        name="dtype",
        help="type of weights and activations; auto: the checkpoint's, or float32 where that is "
        "faster",
        convert=OneOf(get_args(DType), dict.fromkeys(_NARROW, "--quantization")),
    ),
    Flag(
        name="quantization",
        help="store the weights of linear layers in 8 bits, with one scale a row, or in the mix of "
        "4 and 6 bits that GGUF calls Q4_K_M; int4 needs a CPU, fp8 CUDA",
        convert=OneOf(get_args(Quantization)),
    ),
    TRUST_REMOTE_CODE,
)

TASK_FLAGS = (
    Flag(
        name="task",
        help="what the model does with texts; auto: what its checkpoint says",
        convert=OneOf(get_args(Task)),
    ),
    Flag(
        name="pooling",
        help="how a vector is made of a text's tokens; auto: what the checkpoint says, else the "
        "last token of causal models and the mean of others",
        convert=OneOf(get_args(Pooling)),
    ),
    Flag(
        name="matryoshka-dimensions",
        help="sizes to which vectors may be cut, or any, for models that are trained for it",
        convert=sizes_or_any,
        metavar="any|N,...",
        default_text="what the checkpoint says, or the name of a known model",
    ),
    Flag(
        name="score-tokens",
        help="tokens of a causal reranker: the logit of the first less that of the second is the "
        "score",
        convert=two_texts,
        metavar="TRUE,FALSE",
        default_text="what the checkpoint says",
    ),
)
"""Only for ``serve``."""

ENGINE_FLAGS = (
    Flag(
        name="max-model-len",
        help="context length in tokens",
        convert=positive,
        default_text="the model's, or what memory has room for",
    ),
    Flag(
        name="max-num-seqs",
        help="sequences decoded together",
        convert=positive,
        aliases=("max-batch-size",),
    ),
    Flag(
        name="max-num-batched-tokens",
        help="tokens computed in one step; longer prompts are computed in chunks",
        convert=positive,
        default_text="512 on cpu, 8192 on cuda",
    ),
    Flag(
        name="prefill-chunk-size",
        help="most prompt tokens computed in one step while other sequences decode",
        convert=positive,
        default_text="as many as --max-step-ms allows",
    ),
    Flag(
        name="max-step-ms",
        help="expected milliseconds of a step that computes prompts while other sequences decode; "
        "the tokens of a step follow from measured steps; for vectors and scores, of every step",
        convert=positive_number,
        default_text="50 on cpu (100 for vectors and scores), no limit on cuda",
    ),
    Flag(name="block-size", help="tokens in a block of the KV cache", convert=positive),
    Flag(
        name="kv-cache-memory",
        help="bytes for the KV cache, as 4GiB or 500MB",
        convert=size,
        default_text="from free memory",
    ),
    Flag(
        name="kv-cache-dtype",
        help="type of the KV cache; auto: the model's; fp8 needs CUDA and the triton backend, "
        "int8 a CPU and the cpu backend",
        convert=OneOf(get_args(KVCacheDType)),
    ),
    Flag(
        name="gpu-memory-utilization",
        help="share of a GPU's memory for weights, activations and KV cache together",
        convert=share,
    ),
    Switch(name="enforce-eager", help="run no step as CUDA graphs"),
    Switch(
        name="no-async-scheduling",
        help="on CUDA, read a step's tokens back before the next step is launched",
        field="async_scheduling",
    ),
    Switch(
        name="no-enable-prefix-caching",
        help="do not reuse KV cache blocks of common prefixes",
        field="enable_prefix_caching",
        aliases=("no-prefix-cache",),
    ),
    Flag(
        name="attention-backend",
        help="implementation of attention; auto: cpu on a CPU that can compile it, else torch; "
        "triton on CUDA",
        convert=OneOf(get_args(AttentionBackendName)),
    ),
    Flag(
        name="threads",
        help="CPU threads that compute",
        convert=threads,
        metavar="N",
        default_text="OMP_NUM_THREADS, or the physical cores that affinity and quota allow",
    ),
    Flag(
        name="grammar-timeout",
        help="seconds of CPU time that the grammar of a request may take to compile",
        convert=positive_number,
        metavar="SECONDS",
    ),
    Flag(
        name="grammar-memory",
        help="bytes of memory that the grammar of a request may take to compile",
        convert=size,
    ),
    Flag(
        name="grammar-cache-memory",
        help="bytes of compiled grammars that are kept for later requests",
        convert=size,
    ),
)

ENGINE_SEED = Flag(
    name="seed", help="makes the seeds drawn for requests without one repeatable", convert=integer
)

TOKENIZER_WORKERS = Flag(
    name="tokenizer-workers",
    help="threads that render chat templates and tokenize prompts",
    convert=positive,
    aliases=("tokenize-workers",),
)

STREAM_INTERVAL = Flag(
    name="stream-interval",
    help="tokens in a streamed piece, after the first",
    convert=positive,
)


AUTO, NONE = "auto", "none"
"""Values of a parser flag: found from the chat template, and no parser at all."""

PARSER_FLAGS: tuple[Flag, ...] = (
    Flag(
        name="tool-call-parser",
        help="format in which the model writes tool calls; auto: found from its chat template",
        convert=OneOf((AUTO, NONE, *TOOL_PARSERS)),
    ),
    Flag(
        name="reasoning-parser",
        help="tags in which the model thinks; auto: found from its chat template",
        convert=OneOf((AUTO, NONE, *THINKING_TAGS)),
    ),
)
