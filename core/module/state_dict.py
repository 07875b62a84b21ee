"""Load bare state dicts, as torch.save writes them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch

from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.load.config_files import load_config
from core.load.devices import pick_dtype
from core.module.complete import load_complete
from core.module.on_meta import QuickOnMeta
from core.module.prequantised import quantisation_of
from core.system import torch_import


def load_state_dict(config: ModelConfig, source: str, device: torch.device) -> Any:
    """Load the state dict ``config.model`` into the architecture of the config in ``source``."""
    from transformers import AutoModelForCausalLM  # noqa: PLC0415 - slow to import
    from transformers.initialization import no_init_weights  # noqa: PLC0415

    assert config.model is not None
    trust = config.trust_remote_code
    if trust:
        torch_import.restore()  # that code may use the device anywhere
    hf_config = load_config(config, source)
    if quantisation_of(hf_config) is not None:
        raise ModelLoadError(
            f"{config.config} is the config of a quantised model; it needs its directory"
        )
    if not Path(config.model).is_file():
        raise ModelLoadError(f"there is no file {config.model}")
    state = read_state(Path(config.model), map_location="cpu")
    checkpoint = next((v.dtype for v in state.values() if v.is_floating_point()), None)
    dtype = pick_dtype(config.dtype, checkpoint, device)
    with no_init_weights():
        kind = type(AutoModelForCausalLM.from_config(hf_config, trust_remote_code=trust))
    load = functools.partial(
        kind.from_pretrained, None, config=hf_config, state_dict=state, dtype=dtype
    )
    with QuickOnMeta():
        return load_complete(load, config.model)


def read_state(path: Path, **options: Any) -> dict[str, torch.Tensor]:
    """The tensors by name in a file of torch.save; ``options`` are torch.load's.

    What is beside them, as a number of steps, is left out. Raises ModelLoadError if there are none.
    """
    state = torch.load(path, weights_only=True, **options)
    given = state.items() if isinstance(state, dict) else ()
    tensors = {k: v for k, v in given if isinstance(k, str) and isinstance(v, torch.Tensor)}
    if not tensors:
        raise ModelLoadError(f"{path} does not hold a state dict of tensors")
    return tensors
