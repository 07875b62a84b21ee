"""Prove at load that a model computes the same with our attention.

One short forward pass uses the model's own attention, another ours. Their logits must agree. The
second pass also records a LayerSpec for every attention call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from core.contract.errors import ModelLoadError
from core.layer_spec import LayerSpec
from core.model.attention_interface import ATTENTION_NAME, routed
from core.model.causal_attention import causal_attention
from core.model.plain import activation_dtype

PROMPT_LENGTH = 12
"""Tokens of the short pass."""

FLOAT32_TOLERANCE = 1e-2
"""Largest error of the logits, in units of their standard deviation."""

ROUNDED_TOLERANCE = 0.25
"""The same for bfloat16 and float16 activations."""


class AttentionProof:
    """Records and checks the attention of one model."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._name = type(model).__name__
        self.layers: list[LayerSpec] = []
        """The attention calls of a forward pass, in order."""
        self.modules: list[nn.Module] = []
        """The attention module of each call."""

    def run(self) -> None:
        """Raise ModelLoadError, with the reason, if the model cannot use our attention."""
        # any module may be an attention module: only the pass tells
        with routed(self._model.modules(), self._record):
            actual = self._logits(ATTENTION_NAME)
        self._compare(self._logits("eager"), actual)
        if len(set(self.modules)) != len(self.modules):
            raise self._refusal("it calls one attention module more than once in a forward pass")

    def _logits(self, implementation: str) -> torch.Tensor:
        """Logits of a short fixed prompt, ``[num_tokens, vocab_size]``, in float32."""
        model: Any = self._model
        vocab_size = model.config.get_text_config().vocab_size
        ids = (torch.arange(PROMPT_LENGTH) * 7919 + 13) % vocab_size
        positions = torch.arange(PROMPT_LENGTH)
        device = next(model.parameters()).device
        try:
            model.set_attn_implementation(implementation)
            with torch.inference_mode():
                output = model(
                    input_ids=ids[None].to(device),
                    position_ids=positions[None].to(device),
                    use_cache=False,
                )
        except (TypeError, ValueError, KeyError, AttributeError, RuntimeError, IndexError) as error:
            reason = str(error).strip().partition("\n")[0][:200]
            raise self._refusal(f"its forward pass cannot run packed ({reason})") from error
        logits: torch.Tensor = output.logits[0].float()
        return logits

    def _record(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        module: nn.Module,
        kwargs: dict[str, Any],
    ) -> torch.Tensor:
        """Record the layer, and compute causal attention over the prompt."""
        if not getattr(module, "is_causal", True) or query.shape[0] != key.shape[0]:
            raise self._refusal("its attention is not causal self-attention")
        scaling, sinks = kwargs.get("scaling"), kwargs.get("s_aux")
        if sinks is not None and sinks.numel() != query.shape[1]:
            raise self._refusal("its attention sinks are not one number per head")
        spec = LayerSpec(
            num_heads=query.shape[1],
            num_kv_heads=key.shape[1],
            head_dim=query.shape[2],
            value_dim=value.shape[2],
            scale=float(scaling if scaling is not None else query.shape[2] ** -0.5),
            sliding_window=kwargs.get("sliding_window"),
            softcap=kwargs.get("softcap"),
            sinks=None if sinks is None else sinks.detach().flatten().float().clone(),
        )
        self.modules.append(module)
        self.layers.append(spec)
        return causal_attention(query, key, value, spec)

    def _compare(self, expected: torch.Tensor, actual: torch.Tensor) -> None:
        if not self.layers:
            raise self._refusal("its attention does not go through transformers' interface")
        is_float32 = activation_dtype(self._model) == torch.float32
        tolerance = FLOAT32_TOLERANCE if is_float32 else ROUNDED_TOLERANCE
        error = float((expected - actual).abs().max() / expected.std().clamp_min(1e-6))
        if not error < tolerance:  # also if it is NaN
            raise self._refusal(
                "its output changes when its attention is replaced "
                f"(error {error:.2g} standard deviations of its logits)"
            )

    def _refusal(self, reason: str) -> ModelLoadError:
        return ModelLoadError(f"{self._name} cannot be served: {reason}")
