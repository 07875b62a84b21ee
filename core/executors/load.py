"""load_described: a model whose family has a row, from its files to an executor."""

from __future__ import annotations

import logging
from dataclasses import replace
from math import prod

import torch

from core.contract.config import ModelConfig
from core.executors.compiled import CompiledExecutor
from core.executors.described import Described
from core.executors.layer_calls import CallBuilder
from core.executors.plain import read_weights
from core.kernels.cpu.linear import Format
from core.kernels.cpu.threads import bind_threads
from core.load.config_files import end_ids
from core.load.loaded_model import LoadedModel
from core.models.sizes import num_parameters, roles_of, sizes_of
from core.weights.packer import Packer
from core.weights.quantiser import Quantiser
from core.weights.roles import RoleReader

logger = logging.getLogger("roseinfer.core")

_INT4 = 0.61
"""Bytes of a value in 4 and 6 bits, with their scales."""

_EXACT = {"router", "shared_gate", "positions"}
"""Matrices that stay in float32."""


@torch.inference_mode()
def load_described(config: ModelConfig, model: Described) -> LoadedModel:
    """Pack the weights. Core thread only: the executor belongs to the thread.

    Raises Undescribed for tensors that the spec does not fit, and ModelLoadError.
    """
    bind_threads(model.kernels)  # before the owners of panels pack them
    packer, files = Packer(model.kernels, model.format), model.files
    quantiser = None
    if config.quantization == "int4":
        quantiser = Quantiser(model.kernels, len(model.spec.layers))
    reader = RoleReader(files.tensors(), model.spec, files.names)
    calls = CallBuilder(model.spec, reader, packer, quantiser).build()
    executor = CompiledExecutor(model.kernels, calls, files.spec_for)
    executor.fix_length(files.context)
    logger.info(
        "weights: %s MB (%.1f bytes per parameter)",
        f"{packer.nbytes / 1e6:,.0f}",
        packer.nbytes / num_parameters(model.spec),
    )
    kinds = "/".join(packer.block_types) or model.format.name.lower()
    return replace(
        model_of(model), executor=executor, computation=f"{kinds} weights in compiled kernels"
    )


def model_of(model: Described) -> LoadedModel:
    """The facts of the files about a model, without an executor."""
    files, spec = model.files, model.spec
    config_ends = end_ids(files.values)
    return LoadedModel(
        module=None,
        config=sizes_of(spec, files.values["model_type"]),
        device=torch.device("cpu"),
        dtype=files.dtype,
        vocab_size=spec.vocab_size,
        max_model_len=files.context or None,
        eos_token_ids=files.ends or config_ends,
        config_eos_ids=config_ends,
        default_sampling=files.sampling,
        num_parameters=num_parameters(spec),
        in_blocks=model.in_blocks,
    )


def weights_nbytes(model: Described) -> int:
    """Bytes of the packed matrices, and of what stays in float32 beside them, nearly."""
    narrow: float = {Format.INT8: 1, Format.BFLOAT16: 2}.get(model.format, 4)
    if model.in_blocks:
        narrow = 0 if model.files.nbytes else _INT4
    total: float = model.files.nbytes
    for role, shape in roles_of(model.spec):
        if role == "embedding" and not model.spec.ties_head and not model.files.nbytes:
            each: float = model.files.dtype.itemsize
        else:
            each = narrow if len(shape) > 1 and role not in _EXACT else 4
        total += prod(shape) * each
    return int(total)


def check_tensors(model: Described) -> Described:
    """Return the model after comparing the names and shapes of its tensors with the spec.

    Raises Undescribed, and ModelLoadError for a broken file.
    """
    read_weights(model.files.headers(), model.spec, model.files.names)
    return model
