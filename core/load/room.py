"""check_room: refuse a model whose weights cannot fit into memory, before they are loaded.

Otherwise the system would end the process without a word.
"""

from __future__ import annotations

from pathlib import Path

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.gguf.names import part_names
from core.system.checkpoint_files import folder_of
from core.system.machine import ROOT, available_memory, free_swap

_LEAST_SHARES = {"int8": 0.25, "int4": 0.125, "fp8": 0.25, "bfloat16": 0.5, "float16": 0.5}
"""The part of a checkpoint's bytes that is left by a quantisation or type if the files are float32,
the widest type: less is not possible."""


def check_room(config: ModelConfig, gguf: Path | None, root: Path = ROOT) -> None:
    """Raise ModelLoadError if the weights are larger than the memory that can be taken, with swap.

    Only files that are here count. ``root``: see core.system.machine.
    """
    needed = least_nbytes(config, gguf)
    available = available_memory(root) + free_swap(root)
    if needed > available:
        raise ModelLoadError(
            f"the weights of {config.model} take at least {needed / 2**30:.1f} GiB and there is "
            f"memory for {available / 2**30:.1f} GiB: choose a smaller model, --quantization int8 "
            "or int4, or a GGUF file"
        )


def least_nbytes(config: ModelConfig, gguf: Path | None) -> int:
    """The least bytes that the weights take; 0 if that cannot be told from files that are here."""
    if gguf is not None:
        parts = [gguf.with_name(name) for name in part_names(gguf.name)]
        return sum(part.stat().st_size for part in parts if part.is_file())
    folder = folder_of(config.model)
    if folder is None:
        return 0
    total = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    return int(total * _LEAST_SHARES.get(config.quantization, _LEAST_SHARES.get(config.dtype, 1.0)))
