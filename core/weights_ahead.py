"""touch_ahead: make memory for a checkpoint's weights resident while modules are imported."""

from __future__ import annotations

from pathlib import Path

from core import memory_ahead
from core.contract.config import ModelConfig
from core.machine import ROOT, available_memory, num_cores, threads_by_node

SMALLEST = 64 << 20
"""Bytes of weights below which it is not worth a thread."""


def touch_ahead(config: ModelConfig, root: Path = ROOT) -> None:
    """Begin, if the model is a folder of safetensors that a CPU will pack as they are.

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
    try:
        folder = Path(config.model).expanduser()
        return sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    except (OSError, RuntimeError):  # what loads the model says what is wrong with it
        return 0
