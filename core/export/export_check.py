"""Compare what a reader would make of a GGUF file's metadata with the model that is written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from core.contract.errors import ModelLoadError
from core.export.writer import NewTensor, Writable, header
from core.gguf.describe import values_of
from core.gguf.file import GgufFile, Tensor
from core.gguf.metadata import Metadata
from core.gguf.reader import TensorInfo, read_header
from core.gguf.vocabulary.end_tokens import end_token_ids
from core.load.loaded_model import LoadedModel

_INDIFFERENT = frozenset(
    {
        "_name_or_path",
        "architectures",
        "attention_dropout",
        "attn_pdrop",
        "bos_token_id",
        "dtype",
        "embd_pdrop",
        "eos_token_id",
        "initializer_range",
        "model_type",  # a Mistral without a window is a Llama
        "output_router_logits",
        "pad_token_id",
        "pretraining_tp",
        "resid_pdrop",
        "rope_parameters",  # compared by their frequencies
        "router_aux_loss_coef",
        "router_jitter_noise",
        "summary_first_dropout",
        "transformers_version",
        "use_cache",
    }
)
"""Fields that change no logits, or that the tokenizer and the generation config replace."""

_TOLERANCE = 1e-6
"""Files hold numbers in float32."""


def check_config(
    loaded: LoadedModel, metadata: Mapping[str, Writable], tensors: Sequence[NewTensor]
) -> None:
    """Raise ModelLoadError if a reader of the file would build another model, and say which."""
    from transformers import AutoConfig  # noqa: PLC0415 - slow to import

    file = _file_of(metadata, tensors)
    _, values = values_of(file)
    found = AutoConfig.for_model(**values)
    model: Any = loaded.module
    wanted = model.config.to_dict()
    if wanted.get("head_dim", 0) is None:
        wanted["head_dim"] = wanted["hidden_size"] // wanted["num_attention_heads"]
    if wanted.get("n_inner", 0) is None:
        wanted["n_inner"] = 4 * wanted["n_embd"]
    other = sorted(
        f"{key} {wanted.get(key)!r}"
        for key, value in found.to_dict().items()
        if key not in _INDIFFERENT and not _is_equal(wanted.get(key), value)
    )
    other += _other_rope(model, found)
    if other:
        raise ModelLoadError(f"a GGUF file cannot say what its configuration does: {other[0]}")
    missing = loaded.eos_token_ids - end_token_ids(file.metadata)
    if missing:
        raise ModelLoadError(f"a GGUF file has no room for all its end tokens: {sorted(missing)}")


def _file_of(metadata: Mapping[str, Writable], tensors: Sequence[NewTensor]) -> GgufFile:
    """The file as its reader sees it. Only vectors have their data."""
    read = read_header(np.frombuffer(header(metadata, ()), np.uint8))
    return GgufFile(
        Path(),
        Metadata(read.metadata),
        {
            t.name: Tensor(
                TensorInfo(t.name, t.shape, t.type, 0, t.nbytes),
                t.make() if len(t.shape) == 1 else np.empty(0, np.uint8),
            )
            for t in tensors
        },
    )


def _is_equal(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        return math.isclose(wanted, found, rel_tol=_TOLERANCE)
    return bool(wanted == found) or (not wanted and not found)


def _other_rope(model: Any, config: Any) -> list[str]:
    """Rotary modules of the model that ``config`` would give other frequencies."""
    other = []
    for name, module in model.named_modules():
        if not type(module).__name__.endswith("RotaryEmbedding"):
            continue
        buffers = dict(type(module)(config).named_buffers())
        for key, value in module.named_buffers():
            if key not in buffers or not torch.allclose(buffers[key], value.float(), rtol=1e-5):
                other.append(f"the frequencies {name}.{key}")
        wanted = getattr(module, "attention_scaling", 1.0)
        if not _is_equal(wanted, getattr(type(module)(config), "attention_scaling", 1.0)):
            other.append(f"the scale of attention in {name}")
    return other
