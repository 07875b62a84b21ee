"""Our attention inside transformers' own modelling code, and the proof that it fits.

transformers dispatches attention through a registry of functions by name. We register one name
and route its calls to whatever function the current model wants: so the modelling code is never
forked and every family that goes through the registry works. Whether a model does is found out,
not assumed: one short forward pass with a recording function, compared with the model's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from core.contract.errors import ModelLoadError
from core.layer_spec import LayerSpec
from core.model.plain import activation_dtype
from core.model.wide_products import WideProducts

ATTENTION_NAME = "roseinfer"

PROBE_LENGTH = 12
"""Tokens of the probing forward pass; more than a layer count needs, cheap on any model."""


class AttentionFunction(Protocol):
    """Packed causal attention: ``[num_tokens, heads, dim]`` each, for layer ``layer``."""

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int
    ) -> torch.Tensor:
        """Return ``[num_tokens, num_heads, value_dim]``."""


def causal_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, spec: LayerSpec
) -> torch.Tensor:
    """Attention of one sequence to itself, without a cache; shapes as in AttentionFunction."""
    positions = torch.arange(query.shape[0], device=query.device)
    mask = positions <= positions[:, None]
    if spec.sliding_window is not None:
        mask &= positions > positions[:, None] - spec.sliding_window
    output = scaled_dot_product_attention(
        query.transpose(0, 1),
        key.transpose(0, 1),
        value.transpose(0, 1),
        attn_mask=mask,
        scale=spec.scale,
        enable_gqa=spec.num_heads != spec.num_kv_heads,
    )
    return output.transpose(0, 1)


def register() -> None:
    """Make ``ATTENTION_NAME`` known to transformers; harmless when repeated."""
    from transformers import AttentionInterface  # noqa: PLC0415 - slow to import

    AttentionInterface.register(ATTENTION_NAME, _dispatch)


def _dispatch(
    module: nn.Module,
    query: torch.Tensor,  # [1, num_heads, num_tokens, head_dim]
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,  # noqa: ARG001 - the mask follows from the positions
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls: unpack, let the module's own function work, pack."""
    function: Callable[..., torch.Tensor] = module.roseinfer_attention  # type: ignore[assignment]
    output = function(
        query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1), module, kwargs
    )
    return output[None], None


class AttentionHook:
    """Routes the attention of one model to a function of ours. Core thread only.

    ``layers[i]`` describes the ``i``-th attention call of a forward pass.
    """

    def __init__(self, model: nn.Module) -> None:
        """Hook and probe ``model``. Raises ModelLoadError, naming what does not fit."""
        self._model = model
        self._name = type(model).__name__
        self._indices: dict[nn.Module, int] = {}
        self.layers: list[LayerSpec] = []
        register()
        with self._routed(self._record):
            actual = self._probe(ATTENTION_NAME)
        self._compare(self._probe("eager"), actual)
        self._model.set_attn_implementation(ATTENTION_NAME)  # type: ignore[operator]
        if len(self.layers) != len(self._indices):
            raise self._refusal("it calls one attention module more than once in a forward pass")

    @property
    def modules(self) -> list[nn.Module]:
        """The attention modules, in the order of ``layers``."""
        return list(self._indices)

    def install(self, function: AttentionFunction) -> None:
        """From now on every forward pass of the model computes its attention with ``function``."""
        indices = self._indices

        def route(
            query: torch.Tensor,
            key: torch.Tensor,
            value: torch.Tensor,
            module: nn.Module,
            _kwargs: dict[str, Any],
        ) -> torch.Tensor:
            return function(query, key, value, indices[module])

        for module in indices:
            module.roseinfer_attention = route  # type: ignore[assignment]

    def uninstall(self) -> None:
        """Let go of the function; another is to be installed before the next forward pass."""
        for module in self._indices:
            del module.roseinfer_attention

    @contextmanager
    def _routed(self, function: Callable[..., torch.Tensor]) -> Iterator[None]:
        """Route every module that might hold attention; which of them do is not known yet."""
        for module in self._model.modules():
            module.roseinfer_attention = function  # type: ignore[assignment]
        try:
            yield
        finally:
            for module in self._model.modules():
                del module.roseinfer_attention

    def _probe(self, implementation: str) -> torch.Tensor:
        """Logits of a short fixed prompt, ``[num_tokens, vocab_size]``, in float32."""
        model: Any = self._model
        vocab_size = model.config.get_text_config().vocab_size
        ids = (torch.arange(PROBE_LENGTH) * 7919 + 13) % vocab_size
        positions = torch.arange(PROBE_LENGTH)
        device = next(model.parameters()).device
        try:
            model.set_attn_implementation(implementation)
            with torch.inference_mode(), WideProducts():
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
        """Note what the layer asks for, and answer as causal attention over the prompt would."""
        if kwargs.get("softcap") is not None:
            raise self._refusal("its attention uses soft-capping")
        if kwargs.get("s_aux") is not None:
            raise self._refusal("its attention uses sinks")
        if not getattr(module, "is_causal", True) or query.shape[0] != key.shape[0]:
            raise self._refusal("its attention is not causal self-attention")
        scaling = kwargs.get("scaling")
        spec = LayerSpec(
            num_heads=query.shape[1],
            num_kv_heads=key.shape[1],
            head_dim=query.shape[2],
            value_dim=value.shape[2],
            scale=float(scaling if scaling is not None else query.shape[2] ** -0.5),
            sliding_window=kwargs.get("sliding_window"),
        )
        self._indices.setdefault(module, len(self.layers))
        self.layers.append(spec)
        return causal_attention(query, key, value, spec)

    def _compare(self, expected: torch.Tensor, actual: torch.Tensor) -> None:
        """Refuse a model that is not itself any more with its attention replaced."""
        if not self.layers:
            raise self._refusal("its attention does not go through transformers' interface")
        tolerance = 1e-2 if activation_dtype(self._model) == torch.float32 else 0.25
        spread = expected.std().clamp_min(1e-6)
        error = float((expected - actual).abs().max() / spread)
        if not error < tolerance:
            raise self._refusal(
                f"with its attention replaced it computes something else (error {error:.2g} "
                "standard deviations of its logits)"
            )

    def _refusal(self, reason: str) -> ModelLoadError:
        return ModelLoadError(f"{self._name} cannot be served: {reason}")
