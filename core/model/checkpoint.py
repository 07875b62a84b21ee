"""Load checkpoints: directories and hub ids in Hugging Face format, and bare state dicts."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from core import meta_kernels
from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.model.devices import pick_dtype
from core.model.load_bars import download_options
from core.model.on_meta import QuickOnMeta
from core.model.prequantised import is_quantised, placement, quantisation_of

STATE_DICT_SUFFIXES = (".pt", ".pth", ".bin")


def load_pretrained(config: ModelConfig, source: str, device: torch.device) -> Any:
    """Load the directory or hub id ``source`` with ``from_pretrained``."""
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415 - slow to import

    trust = config.trust_remote_code
    hf_config = AutoConfig.from_pretrained(config.config or source, trust_remote_code=trust)
    dtype = pick_dtype(config.dtype, getattr(hf_config, "dtype", None), device)
    method = quantisation_of(hf_config)
    load = functools.partial(
        AutoModelForCausalLM.from_pretrained,
        source,
        config=hf_config,
        trust_remote_code=trust,
        **download_options(source),
    )
    if method is None:
        with QuickOnMeta():
            return load(dtype=dtype)
    if config.quantization != "none":
        raise ModelLoadError(
            f"--quantization {config.quantization} is not supported with {source}, which is "
            f"already quantised with {method!r}"
        )
    meta_kernels.restore()
    # on a CPU our fused modules pass float32 to the modules of the quantisation library
    is_wide = device.type == "cpu" and config.dtype == "auto"
    with _quantisation_errors(method):
        module = load(dtype=torch.float32 if is_wide else dtype, **placement(device))
    # some methods dequantise the model on a device that they do not support
    return module if is_quantised(module) else module.to(dtype)


def load_state_dict(config: ModelConfig, source: str, device: torch.device) -> Any:
    """Load the state dict ``config.model`` into the architecture of the config in ``source``."""
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415 - slow to import

    assert config.model is not None
    trust = config.trust_remote_code
    hf_config = AutoConfig.from_pretrained(source, trust_remote_code=trust)
    if quantisation_of(hf_config) is not None:
        raise ModelLoadError(
            f"{config.config} is the config of a quantised model; it needs its directory"
        )
    if not Path(config.model).is_file():
        raise ModelLoadError(f"there is no file {config.model}")
    state = torch.load(config.model, map_location="cpu", weights_only=True)
    if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
        raise ModelLoadError(f"{config.model} does not hold a state dict of tensors")
    checkpoint = next((v.dtype for v in state.values() if v.is_floating_point()), None)
    module = AutoModelForCausalLM.from_config(hf_config, trust_remote_code=trust)
    missing, unexpected = module.load_state_dict(state, strict=False)
    module.tie_weights()
    tied = set(getattr(module, "_tied_weights_keys", None) or ())
    missing = [key for key in missing if key not in tied]
    if missing or unexpected:
        counts = [f"{len(missing)} missing"] * bool(missing)
        counts += [f"{len(unexpected)} unexpected"] * bool(unexpected)
        example = (missing or unexpected)[0]
        raise ModelLoadError(
            f"{config.model} does not fit {source}: {' and '.join(counts)} tensors, such as "
            f"{example}"
        )
    return module.to(pick_dtype(config.dtype, checkpoint, device))


@contextlib.contextmanager
def _quantisation_errors(method: str) -> Iterator[None]:
    """Name the quantisation method in errors: its package may be missing."""
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelLoadError(
            f"cannot load a checkpoint that is quantised with {method!r}: {reason}"
        ) from error
