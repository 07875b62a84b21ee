"""Tiny models that transformers makes, saved, and loaded again by the rows of their families."""

from __future__ import annotations

import copy
import functools
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import Cohere2Config, Olmo2Config, PhiConfig, PretrainedConfig

from core.assembly.build import LoadedEngine, assemble
from core.contract.config import EngineConfig, ModelConfig
from core.engine.engine import Engine
from core.executors.compiled import CompiledExecutor
from core.executors.described import described
from core.executors.load import load_described
from core.kernels.cpu.bindings import Kernels
from core.load.loaded_model import LoadedModel
from core.run.forward import EagerForward, ForwardPass
from core.text.tokenizer import Tokenizer
from tests.support.checkpoints import (
    CONFIGS,
    CONTEXT,
    DECODER,
    VOCAB_SIZE,
    random_model,
    tiny_model,
)
from tests.support.mixtures import MIXTURES, shared_mixture
from tests.support.tiny_engine import build_engine
from tests.support.tokenizers import byte_level

OTHERS: dict[str, Callable[[], PretrainedConfig]] = {
    "cohere2": lambda: Cohere2Config(**DECODER, sliding_window=16, logit_scale=0.5),
    "olmo2": lambda: Olmo2Config(**DECODER),
    "phi": lambda: PhiConfig(**DECODER | {"num_key_value_heads": 6, "hidden_size": 96}),
}
"""Parallel layers, norms behind their blocks, and a head with a bias."""

FAMILIES = (*CONFIGS, *MIXTURES, *OTHERS)

FLOAT32, BFLOAT16, INT8 = ("float32", "none"), ("bfloat16", "none"), ("float32", "int8")
WEIGHTS = (FLOAT32, BFLOAT16, INT8)
"""``dtype`` and ``quantization`` of a ModelConfig."""


@functools.cache
def original(family: str) -> Any:
    """transformers' model, float32. It must not be changed."""
    if family in OTHERS:
        return random_model(OTHERS[family]())
    return shared_mixture(family) if family in MIXTURES else tiny_model(family)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="described-")  # which this function keeps


@functools.cache
def saved(family: str, dtype: torch.dtype = torch.float32) -> Path:
    """The folder of the family's checkpoint, as long as this process lives."""
    folder = Path(_folder().name, f"{family}-{dtype}")
    model = original(family)
    if dtype is not torch.float32:
        model = copy.deepcopy(model).to(dtype)
    model.save_pretrained(folder)
    return folder


def edited(family: str, edit: Callable[[Any], object], folder: Path) -> Path:
    """Save a changed copy of the family's model."""
    model = copy.deepcopy(original(family))
    edit(model)
    model.save_pretrained(folder)
    return folder


def loaded(
    source: str | Path, weights: tuple[str, str] = FLOAT32, library: Kernels | None = None
) -> LoadedModel:
    """Load a family's checkpoint, or that of a folder, with the kernels of a CPU."""
    folder = saved(source) if isinstance(source, str) else source
    dtype, quantization = weights
    config = ModelConfig(model=str(folder), device="cpu", dtype=dtype, quantization=quantization)
    model = described(config, "auto")
    return load_described(config, model if library is None else replace(model, kernels=library))


def executor_of(*arguments: Any) -> CompiledExecutor:
    """The executor of what ``loaded`` gives."""
    executor = loaded(*arguments).executor
    assert isinstance(executor, CompiledExecutor)
    return executor


def assembled(model: LoadedModel, **limits: Any) -> LoadedEngine:
    """The engine that serves a model, with small limits."""
    sizes = {"kv_cache_memory": 8 << 20, "max_num_seqs": 16, "max_num_batched_tokens": 64}
    config = EngineConfig(**{**sizes, "max_model_len": CONTEXT, **limits})
    return assemble(model, Tokenizer(byte_level(), vocab_size=VOCAB_SIZE), config)


def wrapped(
    executor: CompiledExecutor, wrap: Callable[[EagerForward], ForwardPass], **limits: Any
) -> Engine:
    """An engine whose forward pass is what ``wrap`` makes of the executor's."""
    return build_engine("", executor=executor, backend="cpu", wrap=wrap, **limits)
