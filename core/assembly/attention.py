"""The attention of a loaded model."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from torch import nn

from core.attention.base import AttentionBackend, BackendFactory, backend_factory
from core.contract.config import EngineConfig
from core.contract.errors import ModelLoadError
from core.model.loaded_model import LoadedModel

Instrument: TypeAlias = Callable[[nn.Module, AttentionBackend], AttentionBackend]
"""Gets a model and its attention before the first step; returns the attention to use."""


def attention_factory(name: str, model: LoadedModel, config: EngineConfig) -> BackendFactory:
    """The constructor of a backend. Raises ModelLoadError if it does not support the config."""
    factory = backend_factory(name)
    if config.kv_cache_dtype == "auto":
        return factory
    if name != "triton" or model.device.type != "cuda":
        raise ModelLoadError(
            f"--kv-cache-dtype {config.kv_cache_dtype} needs CUDA and the attention backend "
            f"'triton', not {name!r} on {model.device.type}"
        )
    return functools.partial(cast("Any", factory), dtype=model.dtype)
