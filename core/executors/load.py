"""load_described: a model whose family has a row, from its files to an executor."""

from __future__ import annotations

import logging
from dataclasses import replace
from math import prod

import torch

from core.checkpoint_files import check_file
from core.contract.config import ModelConfig
from core.executors.compiled import CompiledExecutor
from core.executors.described import Described
from core.executors.layer_calls import CallBuilder
from core.executors.plain_weights import read_weights
from core.kernels.cpu.linear import Format
from core.kernels.cpu.threads import bind_threads
from core.model.config_files import generation_of, ids_of
from core.model.loaded_model import LoadedModel
from core.model.room import check_room
from core.model.weight_files import weight_files
from core.models.sizes import num_parameters, roles_of, sizes_of
from core.weights.packer import Packer
from core.weights.roles import MetaTensors, RoleReader, SafetensorsFiles

logger = logging.getLogger("roseinfer.core")

_EXACT = {"router", "shared_gate", "positions"}
"""Matrices that stay in float32."""


@torch.inference_mode()
def load_described(config: ModelConfig, model: Described) -> LoadedModel:
    """Pack the weights. Core thread only: the executor belongs to the thread.

    Raises Undescribed for tensors that the spec does not fit, and ModelLoadError.
    """
    check_room(config, None)
    bind_threads(model.kernels)  # before the owners of panels pack them
    packer = Packer(model.kernels, model.format)
    tensors = SafetensorsFiles(weight_files(model.folder))
    reader = RoleReader(tensors, model.spec, model.names)
    calls = CallBuilder(model.spec, reader, packer).build()
    executor = CompiledExecutor(model.kernels, calls, model.spec_for)
    executor.fix_length(model.context)
    logger.info(
        "weights: %s MB (%.1f bytes per parameter)",
        f"{packer.nbytes / 1e6:,.0f}",
        packer.nbytes / num_parameters(model.spec),
    )
    return replace(model_of(model), executor=executor)


def model_of(model: Described) -> LoadedModel:
    """What the files say, without an executor."""
    ends, sampling = generation_of(str(model.folder))
    config_ends = ids_of(model.values.get("eos_token_id"))
    return LoadedModel(
        module=None,
        config=sizes_of(model.spec, model.values["model_type"]),
        device=torch.device("cpu"),
        dtype=model.dtype,
        vocab_size=model.spec.vocab_size,
        max_model_len=model.context or None,
        eos_token_ids=ends or config_ends,
        config_eos_ids=config_ends,
        default_sampling=sampling,
        num_parameters=num_parameters(model.spec),
        computation=f"{model.format.name.lower()} weights in compiled kernels",
    )


def weights_nbytes(model: Described) -> int:
    """Bytes of the packed matrices, and of what stays in float32 beside them, nearly."""
    narrow = {Format.INT8: 1, Format.BFLOAT16: 2}.get(model.format, 4)
    is_embedding_packed = model.spec.ties_head
    total = 0
    for role, shape in roles_of(model.spec):
        if role == "embedding" and not is_embedding_packed:
            each = model.dtype.itemsize
        else:
            each = narrow if len(shape) > 1 and role not in _EXACT else 4
        total += prod(shape) * each
    return total


def check_tensors(model: Described) -> None:
    """Compare names and shapes of the files' tensors with the spec, without reading a value.

    Raises Undescribed, and ModelLoadError for a broken file.
    """
    files = weight_files(model.folder)
    for file in files:
        check_file(file)
    read_weights(MetaTensors(files), model.spec, model.names)
