"""touch_ahead: make memory for a checkpoint's weights resident while modules are imported."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from core.contract.config import ModelConfig
from core.gguf.names import SUFFIX, models_in, part_names
from core.system import memory_ahead
from core.system.machine import ROOT, available_memory, num_cores, threads_by_node

SMALLEST = 64 << 20
"""Bytes of weights below which it is not worth a thread."""

WIDER_BLOCKS = 33 / 32
"""The most that blocks of a GGUF file grow when packed: integers of 6 bits get a byte."""


def touch_ahead(config: ModelConfig, root: Path = ROOT) -> None:
    """Begin, if the model is a folder of safetensors, or a GGUF file, that a CPU packs as it is.

    Not on one core, which has other work; not with several NUMA nodes, where the thread that uses
    a page has to touch it first; and not where memory is scarce.
    """
    size = _num_bytes(config, root)
    if (
        size >= SMALLEST
        and (cores := num_cores(root)) > 1
        and not threads_by_node(cores, root)
        and 2 * size <= available_memory(root)
    ):
        memory_ahead.begin(size)


def _num_bytes(config: ModelConfig, root: Path) -> int:
    """Bytes of the weights; 0 where it is not certain that they are packed in their own type."""
    has_gpu = (root / "proc/driver/nvidia").exists()
    is_cpu = config.device == "cpu" or (config.device == "auto" and not has_gpu)
    if config.model is None or not is_cpu:
        return 0
    if config.quantization != "none" or config.dtype != "auto":
        return 0
    path = Path(config.model)
    try:
        blocks = _num_bytes_of(_gguf_parts(path, config.gguf_file))
        return int(blocks * WIDER_BLOCKS) or _num_bytes_of(path.glob("*.safetensors"))
    except OSError:  # what loads the model says what is wrong with it
        return 0


def _num_bytes_of(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def _gguf_parts(path: Path, name: str | None) -> list[Path]:
    """The parts of the GGUF file that a model is loaded from, if it is one that is here."""
    if name is not None:
        path /= name
    elif (path / "config.json").exists():
        return []
    elif path.is_dir():
        firsts = models_in(path)
        return [path / part for part in part_names(firsts[0])] if len(firsts) == 1 else []
    if path.suffix != SUFFIX:
        return []
    return [path.with_name(part) for part in part_names(path.name)]
