"""Finding and loading a model: hub id, directory, state dict, or the built-in one."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from core import builtin_model
from core.contract.config import DType, ModelConfig
from core.contract.errors import ModelLoadError
from core.kernels.cpu.library import kernels
from core.model.layout import store_conv1d_by_column
from core.model.memory import enough_memory
from core.model.plain import COMPUTED, activation_dtype
from core.model.prequantised import is_quantised, move, placement, quantisation_of

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}

_CONTEXT_FIELDS = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_seq_len",
    "max_target_positions",
    "max_sequence_length",
    "seq_length",
)
"""Where configurations say how many tokens a sequence may have."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in evaluation mode on its device, and what its configuration says of it.

    ``dtype`` is that of its activations, whatever its weights are stored in.
    """

    module: nn.Module
    device: torch.device
    dtype: torch.dtype
    vocab_size: int
    max_model_len: int | None
    eos_token_ids: frozenset[int]
    default_sampling: dict[str, float]

    @property
    def num_token_ids(self) -> int:
        """Ids that a prompt may have: the embedding has a row for each, and so have the logits."""
        embedding: Any = self.module.get_input_embeddings()  # type: ignore[operator]
        rows = getattr(embedding, "num_embeddings", None)
        return min(self.vocab_size, rows) if isinstance(rows, int) else self.vocab_size


def load_model(config: ModelConfig) -> LoadedModel:
    """Load the weights. Raises ModelLoadError with one clear line.

    Safetensors through ``from_pretrained``; remote code only if the operator asked for it.
    """
    device = pick_device(config.device)
    with _one_line_errors(config.model or "the built-in model"):
        if config.model is not None and config.model.endswith((".pt", ".pth", ".bin")):
            module = _load_state_dict(config, device)
        else:
            module = _load_pretrained(config, device)
    with enough_memory("the weights"):
        module = move(module, device)
    return describe(module, device)


def describe(module: Any, device: torch.device) -> LoadedModel:
    """A model that is on its device. Raises ModelLoadError if its configuration says too little."""
    module = module.eval().requires_grad_(requires_grad=False)
    if device.type == "cpu":
        store_conv1d_by_column(module)
    text_config = module.config.get_text_config()
    return LoadedModel(
        module=module,
        device=device,
        dtype=activation_dtype(module),
        vocab_size=text_config.vocab_size,
        max_model_len=_context_length(text_config),
        eos_token_ids=_eos_token_ids(module),
        default_sampling=_default_sampling(module),
    )


def pick_device(name: str) -> torch.device:
    """``auto`` is CUDA where there is one. Raises ModelLoadError if CUDA is asked for in vain."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ModelLoadError("device 'cuda' was asked for, but torch sees no CUDA device")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def pick_dtype(name: DType, checkpoint: torch.dtype | None, device: torch.device) -> torch.dtype:
    """``auto`` is the checkpoint's own type, unless the device is slow or unable at it.

    Our CPU kernels store bfloat16, and multiply it in float32 where the CPU has no instructions for
    it; torch's own are fast only where it has. No CPU computes float16 well.
    """
    if name != "auto":
        return _DTYPES[name]
    wanted = checkpoint if checkpoint in COMPUTED else torch.float32
    assert wanted is not None
    if device.type != "cpu" or wanted is torch.float32:
        return wanted
    is_fast = wanted is torch.bfloat16 and (kernels() is not None or _cpu_has_bf16())
    return torch.bfloat16 if is_fast else torch.float32


def source_of(config: ModelConfig) -> str:
    """The directory or hub id that holds the config and, unless told otherwise, the tokenizer."""
    if config.model is None:
        return str(builtin_model.path())
    if config.model.endswith((".pt", ".pth", ".bin")):
        if config.config is None or config.tokenizer is None:
            raise ModelLoadError(
                f"{config.model} is a bare state dict: it needs --config and --tokenizer"
            )
        return config.config
    return config.model


def _load_pretrained(config: ModelConfig, device: torch.device) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415 - slow to import

    source = source_of(config)
    trust = config.trust_remote_code
    hf_config = AutoConfig.from_pretrained(config.config or source, trust_remote_code=trust)
    dtype = pick_dtype(config.dtype, getattr(hf_config, "dtype", None), device)
    method = quantisation_of(hf_config)
    load = functools.partial(
        AutoModelForCausalLM.from_pretrained, source, config=hf_config, trust_remote_code=trust
    )
    if method is None:
        return load(dtype=dtype)
    if config.quantization != "none":
        raise ModelLoadError(
            f"--quantization {config.quantization} cannot be had with {source}, which is "
            f"quantised already, with {method!r}"
        )
    # our leaves on a CPU give float32 to layers that are not ours
    is_wide = device.type == "cpu" and config.dtype == "auto"
    with _named(method):
        module = load(dtype=torch.float32 if is_wide else dtype, **placement(device))
    # some methods undo themselves where a device has nothing for them
    return module if is_quantised(module) else module.to(dtype)


def _load_state_dict(config: ModelConfig, device: torch.device) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415 - slow to import

    assert config.model is not None
    trust = config.trust_remote_code
    hf_config = AutoConfig.from_pretrained(source_of(config), trust_remote_code=trust)
    if quantisation_of(hf_config) is not None:
        raise ModelLoadError(f"{config.config} is of a quantised model; it needs its directory")
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
        odd = [f"{len(missing)} missing"] * bool(missing)
        odd += [f"{len(unexpected)} unexpected"] * bool(unexpected)
        example = (missing or unexpected)[0]
        raise ModelLoadError(
            f"{config.model} does not fit {source_of(config)}: {' and '.join(odd)} "
            f"tensors, such as {example}"
        )
    return module.to(pick_dtype(config.dtype, checkpoint, device))


@contextlib.contextmanager
def _named(method: str | None) -> Iterator[None]:
    """Say of what fails how the checkpoint is quantised: a package for that may be missing."""
    try:
        yield
    except Exception as error:
        if method is None:
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelLoadError(
            f"cannot load a checkpoint that is quantised with {method!r}: {reason}"
        ) from error


@contextlib.contextmanager
def _one_line_errors(name: str) -> Iterator[None]:
    """Turn what transformers and torch raise for a bad model into one line."""
    from transformers.utils import logging  # noqa: PLC0415 - slow to import

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except ModelLoadError:
        raise
    except Exception as error:  # whatever a broken checkpoint makes the libraries raise
        first_line = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ModelLoadError(f"cannot load {name}: {first_line}") from error


def _cpu_has_bf16() -> bool:
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()  # noqa: SLF001


def _context_length(config: Any) -> int | None:
    return next(
        (
            value
            for name in _CONTEXT_FIELDS
            if isinstance(value := getattr(config, name, None), int) and value > 0
        ),
        None,
    )


def _eos_token_ids(module: Any) -> frozenset[int]:
    """End tokens of the generation config, else of the model's own config."""
    for config in (getattr(module, "generation_config", None), module.config.get_text_config()):
        eos = getattr(config, "eos_token_id", None)
        if eos is not None:
            return frozenset([eos] if isinstance(eos, int) else eos)
    return frozenset()


def _default_sampling(module: Any) -> dict[str, float]:
    """Sampling values that the model's authors ship in its generation config."""
    config = getattr(module, "generation_config", None)
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
    values = {name: getattr(config, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}
