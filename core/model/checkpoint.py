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
from core.model.complete import load_complete
from core.model.devices import pick_dtype
from core.model.load_bars import download_options
from core.model.on_meta import QuickOnMeta
from core.model.prequantised import is_quantised, placement, quantisation_of
from core.model.weight_files import check_ignored

STATE_DICT_SUFFIXES = (".pt", ".pth", ".bin")


def load_pretrained(config: ModelConfig, source: str, device: torch.device) -> Any:
    """Load the directory or hub id ``source`` with ``from_pretrained``."""
    check_ignored(source)
    module = _load_pretrained(config, source, device)
    check_ignored(source)  # the hub's files are here only now
    return module


def _load_pretrained(config: ModelConfig, source: str, device: torch.device) -> Any:
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
            return load_complete(functools.partial(load, dtype=dtype), source)
    if config.quantization != "none":
        raise ModelLoadError(
            f"--quantization {config.quantization} is not supported with {source}, which is "
            f"already quantised with {method!r}"
        )
    meta_kernels.restore()
    # on a CPU our fused modules pass float32 to the modules of the quantisation library
    is_wide = device.type == "cpu" and config.dtype == "auto"
    load = functools.partial(load, dtype=torch.float32 if is_wide else dtype, **placement(device))
    with _quantisation_errors(method):
        module = load_complete(load, source)
    # some methods dequantise the model on a device that they do not support
    return module if is_quantised(module) else module.to(dtype)


def load_state_dict(config: ModelConfig, source: str, device: torch.device) -> Any:
    """Load the state dict ``config.model`` into the architecture of the config in ``source``."""
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415 - slow to import
    from transformers.initialization import no_init_weights  # noqa: PLC0415

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
    dtype = pick_dtype(config.dtype, checkpoint, device)
    with no_init_weights():
        kind = type(AutoModelForCausalLM.from_config(hf_config, trust_remote_code=trust))
    load = functools.partial(
        kind.from_pretrained, None, config=hf_config, state_dict=state, dtype=dtype
    )
    return load_complete(load, config.model)


@contextlib.contextmanager
def _quantisation_errors(method: str) -> Iterator[None]:
    """Name the quantisation method in errors: its package may be missing."""
    try:
        yield
    except ModelLoadError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelLoadError(
            f"cannot load a checkpoint that is quantised with {method!r}: {reason}"
        ) from error
