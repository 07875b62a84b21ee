"""What transformers makes of a twin: a checkpoint with random weights, and its logits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from core.module.modelling_import import import_modelling
from core.proof.steps import COMPARED, LENGTHS, prompts
from core.proof.twin import VOCAB_SIZE


def reference(twin: Mapping[str, Any], folder: Path) -> list[torch.Tensor]:
    """Save a model of a twin's values in a folder.

    Returns its logits of the COMPARED tokens of each prompt, ``[num_compared, vocab_size]``. Raises
    whatever transformers raises.
    """
    import_modelling()
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415 - slow to import
    from transformers.utils import logging  # noqa: PLC0415

    logging.set_verbosity_error()  # a twin's lengths do not go with its factors
    logging.disable_progress_bar()
    how = {"dtype": torch.float32, "attn_implementation": "eager"}
    with torch.random.fork_rng(devices=()):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**twin), **how)
    model.eval()
    draw(model)
    model.save_pretrained(folder)
    tokens, length = prompts(VOCAB_SIZE), max(LENGTHS)  # what pads the shorter one comes behind it
    ids = torch.tensor([[*prompt, *prompt[: length - len(prompt)]] for prompt in tokens])
    with torch.inference_mode():
        logits = model(input_ids=ids, use_cache=False).logits
    return [own[indices].float() for own, indices in zip(logits, COMPARED, strict=True)]


def draw(model: Any) -> None:
    """Values with which logits differ from token to token, no norm or bias at its neutral value."""
    generator = torch.Generator().manual_seed(1)
    embedding = 0.1 if "gemma" in model.config.model_type else 0.7  # Gemmas multiply them
    buffers = [b for b in model.named_buffers() if b[0].endswith(("correction_bias", "scalar"))]
    for name, x in [*model.named_parameters(), *buffers]:
        noise = torch.randn(x.shape, generator=generator)
        if x.dim() > 1 and "correction_bias" not in name:
            size = 1.2 / min(x.shape[-2:]) ** 0.5
            if "embed" in name or "wte" in name:
                size = embedding
            elif name.endswith("gate_up_proj_bias"):
                size = 2.5  # beyond the limit of gpt-oss's gate
            x.data.copy_(noise * size)
        else:
            x.data.copy_(0.3 * noise + name.endswith(("norm.weight", "scalar")))
            if "q_norm" in name:
                x.data.mul_(0.25)  # Gemma 4 does not divide scores: rounding would grow with them
