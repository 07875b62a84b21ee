"""Memory layout of weights on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from core.module.plain import is_plain


def store_conv1d_by_column(model: nn.Module) -> None:
    """Give 16-bit Conv1D weights ``[in_features, out_features]`` the layout of nn.Linear's.

    torch multiplies them by row many times slower on CPUs without instructions for their type, and
    the proof of the attention would take most of the load time. Values and shapes stay.
    """
    layer: Any
    for layer in model.modules():
        is_conv1d = type(layer).__name__ == "Conv1D" and is_plain(layer)
        if is_conv1d and layer.weight.dtype is not torch.float32:
            layer.weight.data = layer.weight.data.t().contiguous().t()
