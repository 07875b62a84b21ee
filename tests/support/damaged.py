"""Checkpoints with some of their tensors changed, and contents that no library can read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 538090408\n"
PAGE = b"\n<!DOCTYPE html>\n<html><body>Sign in</body></html>\n"

Tensors = dict[str, torch.Tensor]


def change_tensors(folder: Path, change: Callable[[Tensors], Tensors]) -> None:
    """Replace the tensors of ``model.safetensors``."""
    tensors = load_file(folder / "model.safetensors")
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    save_file(change(tensors), folder / "model.safetensors", metadata={"format": "pt"})


def without(part: str) -> Callable[[Tensors], Tensors]:
    """A change that leaves out the tensors with ``part`` in their names."""
    return lambda tensors: {name: t for name, t in tensors.items() if part not in name}


def behind(prefix: str) -> Callable[[Tensors], Tensors]:
    """A change that puts ``prefix`` before all names."""
    return lambda tensors: {prefix + name: tensor for name, tensor in tensors.items()}


def change_config(folder: Path, **fields: Any) -> None:
    """Set fields of ``config.json``."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
