"""LoadedModel: a model on its device, and what its configuration says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from core.model.config_files import SAMPLING, end_ids
from core.model.executor import Executor
from core.model.layout import store_conv1d_by_column
from core.model.plain import activation_dtype

_CONTEXT_FIELDS = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_seq_len",
    "max_target_positions",
    "max_sequence_length",
    "seq_length",
)
"""Names that configurations use for the context length."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that is ready to compute. ``dtype`` is the type of its activations.

    ``config`` has the fields of the text model's configuration. ``module`` is transformers' module
    in evaluation mode, or None if ``executor`` computes the model from its spec.
    ``undescribed`` says why a model whose family has a row has no executor.
    """

    module: Any
    device: torch.device
    dtype: torch.dtype
    vocab_size: int
    max_model_len: int | None  # tokens; None if the configuration does not say
    eos_token_ids: frozenset[int]
    default_sampling: dict[str, float]
    config_eos_ids: frozenset[int] = frozenset()  # a configuration without any has its class's
    num_parameters: int = 0  # before modules are fused; without matrices in a GGUF file's blocks
    config: Any = None
    executor: Executor | None = None
    in_blocks: bool = False  # some matrices of the executor
    computation: str = ""  # of the executor, in words
    undescribed: str = ""

    @property
    def architecture(self) -> str:
        """The ``model_type`` of the configuration."""
        config = self.config if self.module is None else self.module.config
        return str(getattr(config, "model_type", ""))

    @property
    def num_token_ids(self) -> int:
        """Number of ids that a prompt may have: each has a row of the embedding and a logit."""
        if self.executor is not None:
            return self.vocab_size
        embedding = self.module.get_input_embeddings()
        rows = getattr(embedding, "num_embeddings", None)
        return min(self.vocab_size, rows) if isinstance(rows, int) else self.vocab_size


def describe(module: Any, device: torch.device) -> LoadedModel:
    """Prepare a module that is on ``device`` for inference, and read its configuration."""
    module = module.eval().requires_grad_(requires_grad=False)
    skip_padding_checks(module)
    if device.type == "cpu":
        store_conv1d_by_column(module)
    text_config = module.config.get_text_config()
    config_eos_ids = _eos_token_ids(text_config)
    return LoadedModel(
        module=module,
        config=text_config,
        device=device,
        dtype=activation_dtype(module),
        vocab_size=text_config.vocab_size,
        max_model_len=context_length(text_config),
        eos_token_ids=_eos_token_ids(getattr(module, "generation_config", None)) or config_eos_ids,
        config_eos_ids=config_eos_ids,
        default_sampling=_default_sampling(module),
        num_parameters=sum(parameter.numel() for parameter in module.parameters()),
    )


def skip_padding_checks(module: nn.Module) -> None:
    """Let no pass look for padding in its token ids. Steps have none.

    Models such as GPT-2 look for ``pad_token_id`` to warn. On a GPU that makes the host wait for
    the device, which also rules out CUDA graphs.
    """
    for part in module.modules():
        if hasattr(part, "warn_if_padding_and_no_attention_mask"):
            vars(part)["warn_if_padding_and_no_attention_mask"] = _no_check


def _no_check(*_: object, **_named: object) -> None: ...


def context_length(config: Any) -> int | None:
    """Return the context length in tokens that a configuration names, or None."""
    return next(
        (
            value
            for name in _CONTEXT_FIELDS
            if isinstance(value := getattr(config, name, None), int) and value > 0
        ),
        None,
    )


def _eos_token_ids(config: Any) -> frozenset[int]:
    """End tokens that a configuration names."""
    return end_ids({"eos_token_id": getattr(config, "eos_token_id", None)})


def _default_sampling(module: Any) -> dict[str, float]:
    """Sampling values of the model's generation config."""
    config = getattr(module, "generation_config", None)
    values = {name: getattr(config, name, None) for name in SAMPLING}
    return {name: value for name, value in values.items() if value is not None}
