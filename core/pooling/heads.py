"""From the hidden states of a padded batch to one vector for each text.

hidden: [num_texts, longest, width]; lengths: [num_texts]. Padding is on the right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from core.contract.errors import ModelLoadError, first_line
from core.module.state_dict import read_state
from core.pooling.recipe import inner_path, read_object
from core.system.checkpoint_files import check_file, find_file

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "GELU": nn.GELU,
    "Identity": nn.Identity,
    "ReLU": nn.ReLU,
    "SiLU": nn.SiLU,
    "Sigmoid": nn.Sigmoid,
    "Tanh": nn.Tanh,
}


def activation(name: str, source: str) -> nn.Module:
    """Return the module of this name, which ``source`` names. Raises ModelLoadError."""
    if name not in _ACTIVATIONS:
        raise ModelLoadError(f"the activation {name} of {source} is not supported")
    return _ACTIVATIONS[name]()


def pool(hidden: torch.Tensor, lengths: torch.Tensor, poolings: Sequence[str]) -> torch.Tensor:
    """Return [num_texts, len(poolings) * width]."""
    vectors = [_POOLINGS[name](hidden, lengths) for name in poolings]
    return vectors[0] if len(vectors) == 1 else torch.cat(vectors, dim=-1)


def load_dense(source: str, folder: str) -> tuple[nn.Linear, nn.Module]:
    """Load a dense layer of sentence-transformers, and its activation. Raises ModelLoadError."""
    config = read_object(source, inner_path(folder, "config.json"))
    try:
        linear = nn.Linear(
            config["in_features"], config["out_features"], bias=config.get("bias", True)
        )
        weights = _weights(source, folder)
        linear.load_state_dict({name.removeprefix("linear."): w for name, w in weights.items()})
    except ModelLoadError:
        raise
    except Exception as error:  # any error that damaged files may cause in torch
        raise ModelLoadError(
            f"the dense layer {folder} of {source} is not complete: {first_line(error)}"
        ) from error
    name = str(config.get("activation_function", "Tanh")).rpartition(".")[2]
    return linear, activation(name, source)


def _weights(source: str, folder: str) -> dict[str, Any]:
    path = find_file(source, inner_path(folder, "model.safetensors"))
    if path is not None:
        check_file(path)
        from safetensors.torch import load_file  # noqa: PLC0415 - only for dense layers

        weights: dict[str, Any] = load_file(path)
        return weights
    path = find_file(source, inner_path(folder, "pytorch_model.bin"))
    if path is None:
        raise ModelLoadError(f"the dense layer {folder} of {source} has no weights")
    check_file(path)
    return read_state(path, map_location="cpu")


def _mask(hidden: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """[num_texts, longest, 1]: 1 where a token is."""
    positions = torch.arange(hidden.shape[1], device=hidden.device)
    return (positions[None] < lengths[:, None]).unsqueeze(-1).to(hidden.dtype)


def _cls(hidden: torch.Tensor, _lengths: torch.Tensor) -> torch.Tensor:
    return hidden[:, 0]


def _last(hidden: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return hidden[torch.arange(len(hidden), device=hidden.device), lengths - 1]


def _max(hidden: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return hidden.masked_fill(_mask(hidden, lengths) == 0, -1e9).max(dim=1).values


def _sum(hidden: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return (hidden * _mask(hidden, lengths)).sum(dim=1)


def _mean(hidden: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return _sum(hidden, lengths) / lengths[:, None]


def _mean_sqrt(hidden: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return _sum(hidden, lengths) / lengths[:, None].to(hidden.dtype).sqrt()


def _weighted_mean(hidden: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Later tokens weigh more: the weights are 1, 2, 3 and so on."""
    weights = torch.arange(1, hidden.shape[1] + 1, device=hidden.device, dtype=hidden.dtype)
    weights = weights[None, :, None] * _mask(hidden, lengths)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1)


_POOLINGS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cls": _cls,
    "max": _max,
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_sqrt,
    "weightedmean": _weighted_mean,
    "lasttoken": _last,
}
