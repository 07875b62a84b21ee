"""Fix RoPE frequencies at load.

transformers computes the frequencies of two kinds of RoPE from the largest position of a forward
pass. A pass of ours has the tokens of several sequences in it: a long neighbour would change what a
short one computes, and what the prefix cache keeps of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

FIXED = "fixed"
"""The RoPE type of a module whose frequencies transformers must not change."""

_SCALES = ("short_mscale", "long_mscale")
"""Scales of the cosines and sines beside the factors, as Phi-3.5-MoE has."""


class FixedRope:
    """The RoPE modules of a model whose frequencies depend on the context. See ``fix_rope``."""

    def __init__(self, model: nn.Module) -> None:
        self._parts = list(_dynamic_parts(model))
        for part in self._parts:
            if part.layer_type is None:
                part.module.rope_type = FIXED
            else:
                part.module.rope_type[part.layer_type] = FIXED

    @torch.inference_mode()
    def fix(self, max_model_len: int) -> None:
        """Set the frequencies for sequences of ``max_model_len`` tokens, in place of earlier ones.

        Modules that were replaced since the model was loaded must still ask these for their angles.
        """
        for part in self._parts:
            part.fix(max_model_len)


def fix_rope(model: nn.Module, max_model_len: int) -> FixedRope:
    """Set the frequencies of RoPE modules for sequences of ``max_model_len`` tokens.

    "longrope" has long factors if that is more than the length of the pretraining and short ones
    otherwise, as vLLM chooses. "dynamic" (NTK) scales its base by that length.
    """
    rope = FixedRope(model)
    rope.fix(max_model_len)
    return rope


@dataclass(frozen=True, slots=True)
class _Part:
    """The frequencies of a module for one type of layer; None if it has no types of layers."""

    module: Any
    kind: str
    layer_type: str | None
    scales: tuple[float, ...]  # as the checkpoint has them: short, long; or none

    def fix(self, max_model_len: int) -> None:
        from transformers.modeling_rope_utils import (  # noqa: PLC0415 - slow to import
            ROPE_INIT_FUNCTIONS,
        )

        config = self.module.config
        name = "inv_freq" if self.layer_type is None else f"{self.layer_type}_inv_freq"
        frequencies = getattr(self.module, name)
        computed, _ = ROPE_INIT_FUNCTIONS[self.kind](
            config, frequencies.device, seq_len=max_model_len, layer_type=self.layer_type
        )
        setattr(self.module, name, computed.to(frequencies.dtype))
        if self.scales:
            is_long = max_model_len > config.rope_parameters["original_max_position_embeddings"]
            config.rope_parameters.update(dict.fromkeys(_SCALES, self.scales[is_long]))


def _dynamic_parts(model: nn.Module) -> Iterator[_Part]:
    """Find the frequencies that transformers changes in a forward pass."""
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        if isinstance(kinds, str) and _is_dynamic(kinds):
            parameters: Any = module.config.rope_parameters  # type: ignore[union-attr]
            has_scales = all(name in parameters for name in _SCALES)
            scales = tuple(parameters[name] for name in _SCALES) if has_scales else ()
            yield _Part(module, kinds, None, scales)
        if isinstance(kinds, dict):
            for layer_type, kind in kinds.items():
                if _is_dynamic(kind):
                    yield _Part(module, kind, layer_type, ())


def _is_dynamic(kind: str) -> bool:
    return "dynamic" in kind or kind == "longrope"
