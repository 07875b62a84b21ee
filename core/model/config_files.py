"""The configuration of a checkpoint in Hugging Face format, and that of its generation."""

from __future__ import annotations

from typing import Any

from core.checkpoint_files import folder_of, read_file
from core.contract.config import ModelConfig
from core.model.load_errors import named_errors

_IGNORED = "generation_config.json"
"""transformers ignores it if it is broken, and with it end tokens and defaults of sampling."""


def load_config(config: ModelConfig, source: str) -> Any:
    """The configuration that the operator names, else that of ``source``.

    Raises ModelLoadError for what is not there or broken, other errors of transformers pass.
    """
    from transformers import AutoConfig  # noqa: PLC0415 - slow to import

    source = config.config or source
    with named_errors(source):
        try:
            return AutoConfig.from_pretrained(source, trust_remote_code=config.trust_remote_code)
        except Exception:
            _check(source, "config.json")
            raise


def check_ignored(source: str) -> None:
    """Raise ModelLoadError for a broken file that transformers would ignore."""
    _check(source, _IGNORED)


def _check(source: str, name: str) -> None:
    folder = folder_of(source)
    if folder is not None and ((path := folder / name).is_symlink() or path.exists()):
        read_file(path)
