"""Load a GGUF file into transformers' modules.

The model is built without memory for its parameters, so that every size that the metadata claims is
compared with the tensors of the file before anything is allocated.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.gguf.file import GgufFile
from core.gguf.module_names import ModuleNames, modules_of
from core.gguf.vocabulary.end_tokens import end_token_ids
from core.gguf.weights import Parameter, weights_of
from core.load.devices import pick_dtype
from core.system.torch_import import restored_if_needed

_MAKERS = {torch.empty, torch.ones, torch.zeros}
"""What modules make their parameters with, before they are initialised."""


def load_gguf(config: ModelConfig, path: Path, device: torch.device) -> Any:
    """Load a file. Raises ModelLoadError.

    Values are float32, or the type that ``config`` names.
    """
    if config.config is not None:
        raise ModelLoadError("--config is not used with a GGUF file, which has its own")
    file = GgufFile.open(path)
    dtype = gguf_dtype(config, file, device)
    try:
        return _load(file, dtype)
    except ModelLoadError as error:
        raise ModelLoadError(f"{path} cannot be served: {error}") from error


def gguf_dtype(
    config: ModelConfig, file: GgufFile, device: torch.device, *, by_kernels: bool = False
) -> torch.dtype:
    """The type of the model that a file is loaded as; see ``pick_dtype``."""
    return pick_dtype(config.dtype, _type_of(file, device), device, by_kernels=by_kernels)


def _load(file: GgufFile, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM  # noqa: PLC0415 - slow to import
    from transformers.initialization import no_init_weights  # noqa: PLC0415

    names, hf_config = config_of(file)
    _check_vocabulary(file, hf_config.vocab_size)
    with no_init_weights(), _WithoutMemory():
        module = AutoModelForCausalLM.from_config(hf_config, dtype=dtype)
    weights = weights_in(file, names, module)
    _fill(module, weights, dtype)
    module.tie_weights()
    assert not any(tensor.is_meta for tensor in (*module.parameters(), *module.buffers()))
    module.generation_config.eos_token_id = sorted(end_token_ids(file.metadata)) or None
    return module


def config_of(file: GgufFile) -> tuple[ModuleNames, Any]:
    """The names of the modules of the model in a file, and its configuration in transformers."""
    from transformers import AutoConfig  # noqa: PLC0415 - slow to import

    names, values = modules_of(file)
    return names, AutoConfig.for_model(**values)


def weights_in(file: GgufFile, names: ModuleNames, module: Any) -> dict[str, Parameter]:
    """The weights in a file of the parameters of a model. Raises ModelLoadError."""
    config = module.config
    head_dim = getattr(config, "head_dim", None) or (
        config.hidden_size // config.num_attention_heads
    )
    return weights_of(file, names, head_dim, _shapes(module))


class _WithoutMemory(torch.overrides.TorchFunctionMode):
    """Give no memory to parameters: what is made without values, or with one, is on "meta".

    ``torch.device("meta")`` would put the angles of RoPE there too. They would have to be made
    again, and their arithmetic imports a package for symbolic algebra.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _MAKERS:
            kwargs = kwargs | {"device": "meta"}
        return restored_if_needed(func, *args, **kwargs)


def _check_vocabulary(file: GgufFile, num_rows: int) -> None:
    """Refuse tokens that the embedding has no row for."""
    num_tokens = file.metadata.count("tokenizer.ggml.tokens")
    if num_tokens > num_rows:
        raise ModelLoadError(f"it has {num_tokens} tokens and {num_rows} rows of embeddings")


def _shapes(module: Any) -> dict[str, torch.Size]:
    """Shapes of the parameters that a checkpoint must have."""
    tied = set(module.all_tied_weights_keys) if module.config.tie_word_embeddings else set()
    return {name: p.shape for name, p in module.named_parameters() if name not in tied}


def _fill(module: nn.Module, weights: dict[str, Parameter], dtype: torch.dtype) -> None:
    """Write the values of the other parameters."""
    for name, weight in weights.items():
        place, _, attribute = name.rpartition(".")
        owner = module.get_submodule(place)
        value = nn.Parameter(weight.values(dtype), requires_grad=False)
        setattr(owner, attribute, value)


def _type_of(file: GgufFile, device: torch.device) -> torch.dtype:
    """The type of the matrices; float32 holds the values of quantised blocks exactly."""
    types = {t.info.type.name for t in file.tensors.values() if len(t.shape) > 1}
    if types <= {"BF16", "F32"} and "BF16" in types:
        return torch.bfloat16
    if types <= {"F16", "F32"} and "F16" in types:
        return torch.float16
    return torch.float32 if device.type == "cpu" else torch.bfloat16
