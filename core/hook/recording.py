"""Record the shapes, masks and arguments of a model's attention calls.

One forward pass of a few tokens runs with a recording function as its attention. It skips products
with weights, since values do not matter.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from core.contract.errors import ModelLoadError
from core.hook.interface import MASKED_ATTENTION_NAME, routed
from core.hook.reduced import SMALLEST, Windows
from core.kv.layer_spec import LayerSpec
from core.system.private_names import is_stateful

logger = logging.getLogger("roseinfer.core")

NUM_TOKENS = 12
"""Tokens of the pass: more than the largest reduced window."""

_STATEFUL = {"linear_attention", "conv", "mamba", "recurrent", "hybrid"}
"""Layer types of transformers with state besides keys and values."""

_CACHE_OF_EACH_CALL = "per_loop"
"""The value of a configuration's mode of caching that is ours: keys and values of each call."""


class Recording:
    """The attention calls of one model, in the order of a forward pass."""

    def __init__(self, model: nn.Module, windows: Windows) -> None:
        """Record them. Raises ModelLoadError if one is not causal self-attention."""
        self.layers: list[LayerSpec] = []
        self.modules: list[nn.Module] = []
        """The attention module of each call."""
        self._name = type(model).__name__
        self._sizes: dict[int, int] = {}
        if _keeps_state(model):
            raise self._refusal("it keeps state outside of attention")
        config: Any = model.config
        if (found := _other_cache(config.get_text_config())) is not None:
            raise self._refusal(f"its configuration has {found}, another cache than one per call")
        with windows.reduced(SMALLEST) as small, routed(model.modules(), self._record):
            # any module may be an attention module; only the pass shows which are
            self._sizes = {reduced: size for size, reduced in small.items()}
            self._run(model)
        if not self.layers:
            raise self._refusal("its attention does not go through transformers' interface")
        seen = {layer.sliding_window for layer in self.layers}
        if (size := windows.unseen(seen, config.get_text_config())) is not None:
            raise self._refusal(f"its configuration has a window of {size} that its mask has not")

    def _run(self, model: Any) -> None:
        device = next(model.parameters()).device
        ids = torch.arange(NUM_TOKENS, device=device)[None]
        try:
            model.set_attn_implementation(MASKED_ATTENTION_NAME)
            with torch.inference_mode(), WithoutProducts():
                model(input_ids=ids, position_ids=ids, use_cache=False)
        except ModelLoadError:
            raise
        except Exception as error:  # any error of the model's code
            logger.debug("the recording of %s failed", self._name, exc_info=error)
            raise self._refusal(
                "its forward pass cannot run on packed tokens and positions without a cache"
            ) from error

    def _record(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        module: nn.Module,
        kwargs: dict[str, Any],
    ) -> torch.Tensor:
        """Record the call; return zeros."""
        if query.shape[0] != key.shape[0]:
            raise self._refusal("its attention is not causal self-attention")
        scaling, sinks = kwargs.get("scaling"), kwargs.get("s_aux")
        if sinks is not None and sinks.numel() != query.shape[1]:
            raise self._refusal("its attention sinks are not one number per head")
        self.modules.append(module)
        self.layers.append(
            LayerSpec(
                num_heads=query.shape[1],
                num_kv_heads=key.shape[1],
                head_dim=query.shape[2],
                value_dim=value.shape[2],
                scale=float(scaling if scaling is not None else query.shape[2] ** -0.5),
                sliding_window=self._window(module, kwargs),
                softcap=kwargs.get("softcap"),
                sinks=None if sinks is None else sinks.detach().flatten().float().clone(),
            )
        )
        return query.new_zeros(*query.shape[:2], value.shape[2])

    def _window(self, module: nn.Module, kwargs: dict[str, Any]) -> int | None:
        """Return the window of the call's mask, or of its argument if it has no mask."""
        mask = kwargs.get("attention_mask")
        if mask is None:
            if not getattr(module, "is_causal", True):
                raise self._refusal("its attention is not causal self-attention")
            return self._sizes.get(kwargs.get("sliding_window") or 0)
        is_seen = mask if mask.dtype is torch.bool else mask > torch.finfo(mask.dtype).min / 2
        if mask.dtype is not torch.bool and bool((mask[is_seen] != 0).any()):
            raise self._refusal("its attention adds a bias to its scores")
        reduced = int(is_seen[..., -1, :].sum() // is_seen[..., -1, :1].numel())
        distance = torch.arange(NUM_TOKENS)[:, None] - torch.arange(NUM_TOKENS)
        expected = ((distance >= 0) & (distance < reduced)).to(mask.device)
        if is_seen.shape[-2:] != expected.shape or bool((is_seen != expected).any()):
            raise self._refusal("its attention mask is neither causal nor a sliding window")
        if reduced < NUM_TOKENS and reduced not in self._sizes:
            raise self._refusal("its attention mask has a window that its configuration does not")
        return self._sizes.get(reduced)

    def _refusal(self, reason: str) -> ModelLoadError:
        return ModelLoadError(f"{self._name} cannot be served: {reason}")


def _other_cache(config: Any) -> str | None:
    """Name a field that makes transformers' cache hold less than each call's keys and values."""
    for name, value in vars(config).items():
        if "cache_mode" in name and isinstance(value, str) and value != _CACHE_OF_EACH_CALL:
            return f"{name} {value!r}"
    return None


def _keeps_state(model: Any) -> bool:
    """Return true if the configuration names layers with state besides keys and values."""
    kinds = getattr(model.config.get_text_config(), "layer_types", None) or ()
    return is_stateful(model) or not _STATEFUL.isdisjoint(kinds)


class WithoutProducts(TorchFunctionMode):
    """Inside the block, a product with a weight is what it is for zeros: zero, or the bias.

    So a pass of a large model is cheap.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.linear and len(args) >= 2 and type(args[1]) is nn.Parameter:
            x, weight, *rest = args
            y = x.new_zeros(*x.shape[:-1], len(weight))
            bias = rest[0] if rest else (kwargs or {}).get("bias")
            return y if bias is None else y + bias
        return func(*args, **(kwargs or {}))
