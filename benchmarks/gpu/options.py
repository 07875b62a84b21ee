"""The device, models and engines of a check on a GPU."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench.random_model import cached_random_model
from benchmarks.floors import Cost
from benchmarks.shapes import shape_of
from core.assembly.build import LoadedEngine, load_engine
from core.contract.config import EngineConfig, ModelConfig, Quantization

MAX_NUM_SEQS = 128

LARGE = "qwen3-8b"
"""The large model of the check."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """``tiny``: use a tiny model and small loads, for a rehearsal on a CPU."""

    device: str
    tiny: bool

    def model(self, name: str) -> Path:
        """The directory of a random model of this shape. Makes the model if it does not exist."""
        return cached_random_model("tiny" if self.tiny else name)

    def dtype(self) -> str:
        """The type of the measurements; a CPU may be slow in bfloat16."""
        return "float32" if self.tiny else "bfloat16"

    def cost(
        self, name: str, *, has_fp8_cache: bool = False, quantization: Quantization = "none"
    ) -> Cost:
        """The cost model of this model, for floors."""
        size = 4 if self.dtype() == "float32" else 2
        return Cost(
            shape=shape_of(self.model(name)),
            weight_bytes=size if quantization == "none" else 1,
            kv_bytes=1 if has_fp8_cache else size,
        )

    @contextmanager
    def engine(
        self,
        name: str,
        *,
        dtype: str | None = None,
        quantization: Quantization = "none",
        **limits: Any,
    ) -> Iterator[LoadedEngine]:
        """An engine; leaving the block frees its memory."""
        if self.tiny:
            limits = {"kv_cache_memory": 2**27, **limits}
        model: Any = {"device": self.device, "dtype": dtype or self.dtype()}
        loaded = load_engine(
            ModelConfig(model=str(self.model(name)), quantization=quantization, **model),
            EngineConfig(**{"max_num_seqs": MAX_NUM_SEQS, **limits}),
        )
        engine: Any = loaded.engine
        try:
            yield loaded
        finally:
            engine.__dict__.clear()  # the caller still holds a reference
            free_memory()


def free_memory() -> None:
    """Collect garbage and return unused device memory."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
