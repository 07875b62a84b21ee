"""check_request: whether a model can be asked for as a GGUF file of this name."""

from __future__ import annotations

from pathlib import Path

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.gguf.names import SUFFIX
from core.load.source import find_gguf, holds_gguf


def check_request(config: ModelConfig, path: Path) -> None:
    """Raise ModelLoadError for what would fail after the model has been loaded."""
    if config.model is None:
        raise ModelLoadError("the built-in model cannot be written as a GGUF file: name a model")
    if path.suffix != SUFFIX:
        raise ModelLoadError(f"{path} does not end in {SUFFIX}")
    if not path.parent.is_dir():
        raise ModelLoadError(f"there is no directory {path.parent}")
    if config.gguf_file is not None or holds_gguf(config.model):
        raise ModelLoadError("a GGUF file cannot be quantised; name the model that it was made of")
    find_gguf(config)  # refuses what is no model
