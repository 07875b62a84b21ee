"""The attention of a loaded model."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from core.attention.base import AttentionBackend, BackendFactory, backend_factory
from core.contract.config import EngineConfig
from core.contract.errors import ModelLoadError
from core.load.loaded_model import LoadedModel

_DEVICES = {"cuda": "CUDA", "cpu": "a CPU"}

Instrument: TypeAlias = Callable[[LoadedModel, AttentionBackend], AttentionBackend]
"""Gets a model and its attention before the first step; returns the attention to use."""


def attention_factory(name: str, model: LoadedModel, config: EngineConfig) -> BackendFactory:
    """The constructor of a backend. Raises ModelLoadError if it does not support the config."""
    factory = backend_factory(name)
    dtype, device = config.kv_cache_dtype, model.device.type
    if dtype == "auto":
        return factory
    needed = {"fp8": ("triton", "cuda"), "int8": ("cpu", "cpu")}[dtype]
    if (name, device) != needed:
        raise ModelLoadError(
            f"--kv-cache-dtype {dtype} needs {_DEVICES[needed[1]]} and the attention backend "
            f"{needed[0]!r}, not {name!r} on {device}"
        )
    if dtype == "int8":
        return factory
    return functools.partial(cast("Any", factory), dtype=model.dtype)
