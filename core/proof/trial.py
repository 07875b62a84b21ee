"""Trial of a twin: what transformers makes of its checkpoint, and what the executor makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from core.attention.base import AttentionBackend
from core.attention.cpu_backend import PagedCPUBackend
from core.executors.compiled import CompiledExecutor
from core.executors.layer_calls import CallBuilder
from core.kernels.cpu.library import kernels_or_reason
from core.kernels.cpu.linear import Format
from core.models.names import Names
from core.models.spec import DecoderSpec, Undescribed
from core.module.modelling_import import import_modelling
from core.proof.steps import COMPARED, padded, prompts, run_steps
from core.proof.twin import VOCAB_SIZE, Twin
from core.run.forward import EagerForward
from core.weights.packer import Packer
from core.weights.roles import RoleReader, SafetensorsFiles


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
    with torch.inference_mode():
        logits = model(input_ids=padded(prompts(VOCAB_SIZE)), use_cache=False).logits
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


TOLERANCE = 5e-5
"""Largest error of a logit, as a share of the largest logit."""


@torch.inference_mode()
def executor_of(
    folder: Path, described: Callable[[int], tuple[DecoderSpec, Names]], twin: Twin
) -> CompiledExecutor:
    """The executor of a twin's checkpoint, as it is ``described`` for a served length.

    Raises Undescribed.
    """
    compiled = kernels_or_reason()
    if isinstance(compiled, str):
        raise Undescribed(f"there are no compiled kernels: {compiled}")
    spec, names = described(twin.max_model_len)
    reader = RoleReader(SafetensorsFiles(folder.glob("*.safetensors")), spec, names)
    calls = CallBuilder(spec, reader, Packer(compiled, Format.FLOAT32)).build()
    executor = CompiledExecutor(compiled, calls, lambda length: described(length)[0])
    executor.fix_length(twin.max_model_len)
    return executor


def compare(executor: CompiledExecutor, expected: list[torch.Tensor]) -> str:
    """Run the steps; return what differs from the ``expected`` logits of ``reference``."""
    device = torch.device("cpu")

    def forward_over(attention: AttentionBackend) -> EagerForward:
        executor.attach(attention)
        return EagerForward(None, attention, device, executor=executor)

    how = (executor.layers, prompts(VOCAB_SIZE), torch.float32, device)
    largest = torch.cat(expected).abs().max()
    for finding, rows, actual in run_steps(forward_over, PagedCPUBackend, *how):
        wanted = torch.cat([own[row] for own, row in zip(expected, rows, strict=True)])
        error = float((wanted - actual).abs().max() / largest)
        if not error < TOLERANCE:
            return f"{finding} (error {error:.2g} of the largest logit)"
    return ""
