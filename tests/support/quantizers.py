"""A quantisation method of the tests', known to transformers as those of libraries are."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers.quantizers import (
    HfQuantizer,
    register_quantization_config,
    register_quantizer,
)
from transformers.utils.quantization_config import QuantizationConfigMixin

METHOD = "eights"
_HEAD = "lm_head"


class EightsLinear(nn.Linear):
    """A matrix of int8 with a scale a row; it multiplies what it is given in the type of that."""

    def __init__(self, size: int, num_outputs: int, *, bias: bool) -> None:
        super().__init__(size, num_outputs, bias=bias)
        codes = torch.zeros(num_outputs, size, dtype=torch.int8, device=self.weight.device)
        self.weight = nn.Parameter(codes, requires_grad=False)
        self.scale = nn.Parameter(torch.ones(num_outputs), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight.to(x.dtype) * self.scale.to(x.dtype)[:, None]
        return nn.functional.linear(x, weight, self.bias)

    def dequantised(self) -> nn.Linear:
        linear = nn.Linear(self.in_features, self.out_features, bias=self.bias is not None)
        linear.weight = nn.Parameter((self.weight * self.scale[:, None]).bfloat16())
        linear.bias = self.bias
        return linear


@register_quantization_config(METHOD)
class EightsConfig(QuantizationConfigMixin):
    def __init__(
        self, *, needs: str | None = None, dequantize: bool = False, **_kwargs: Any
    ) -> None:
        """``dequantize`` undoes it at load, to bfloat16 whatever was asked for."""
        self.quant_method = METHOD
        self.needs = needs
        self.dequantize = dequantize


@register_quantizer(METHOD)
class EightsQuantizer(HfQuantizer):
    def validate_environment(self, *_args: Any, **_kwargs: Any) -> None:
        needs = self.quantization_config.needs
        if needs is not None:
            raise ImportError(f"needs {needs}\n(`pip install {needs}`)")

    def _process_model_before_weight_loading(self, model: nn.Module, **_kwargs: Any) -> nn.Module:
        return replace_linear(model)

    def _process_model_after_weight_loading(self, model: nn.Module, **_kwargs: Any) -> nn.Module:
        if self.quantization_config.dequantize:
            for parent in list(model.modules()):
                for name, child in list(parent.named_children()):
                    if isinstance(child, EightsLinear):
                        setattr(parent, name, child.dequantised())
        return model

    def is_serializable(self) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        return False


def replace_linear(model: nn.Module) -> nn.Module:
    """Put an empty EightsLinear in the place of each linear layer but the output layer."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and name != _HEAD:
                with torch.device(child.weight.device):
                    has_bias = child.bias is not None
                    quantised = EightsLinear(child.in_features, child.out_features, bias=has_bias)
                setattr(parent, name, quantised)
    return model


def save_quantised(model: Any, directory: Path, **settings: Any) -> Any:
    """Save a checkpoint of ``model`` in this method; returns the model with what it stands for."""
    model = copy.deepcopy(model)
    meant = copy.deepcopy(model)
    state = model.state_dict()
    replace_linear(model)
    for name, module in model.named_modules():
        if isinstance(module, EightsLinear):
            weight = state[f"{name}.weight"]
            scale = weight.abs().amax(1) / 127
            codes = (weight / scale[:, None]).round()
            state[f"{name}.weight"], state[f"{name}.scale"] = codes.to(torch.int8), scale
            meant.get_submodule(name).weight.copy_(codes * scale[:, None])
    model.load_state_dict(state)
    model.save_pretrained(directory)
    config = json.loads((directory / "config.json").read_text())
    config["quantization_config"] = {"quant_method": METHOD, **settings}
    (directory / "config.json").write_text(json.dumps(config))
    return meant
