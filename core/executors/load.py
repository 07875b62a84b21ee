"""load_described: a model whose family has a row, from its files to an executor."""

from __future__ import annotations

import logging

import torch

from core.contract.config import ModelConfig
from core.executors.compiled import CompiledExecutor
from core.executors.described import Described
from core.executors.layer_calls import CallBuilder
from core.kernels.cpu.threads import bind_threads
from core.model.config_files import end_ids, generation_of
from core.model.loaded_model import LoadedModel
from core.model.room import check_room
from core.model.weight_files import weight_files
from core.models.sizes import num_parameters, sizes_of
from core.weights.packer import Packer
from core.weights.roles import RoleReader, SafetensorsFiles

logger = logging.getLogger("roseinfer.core")


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
    count = num_parameters(model.spec)
    logger.info(
        "weights: %s MB (%.1f bytes per parameter)",
        f"{packer.nbytes / 1e6:,.0f}",
        packer.nbytes / count,
    )
    generation, ends = generation_of(model.folder), end_ids(model.values)
    return LoadedModel(
        module=None,
        config=sizes_of(model.spec, model.values["model_type"]),
        device=torch.device("cpu"),
        dtype=model.dtype,
        vocab_size=model.spec.vocab_size,
        max_model_len=model.context or None,
        eos_token_ids=generation.eos_token_ids or ends,
        config_eos_ids=ends,
        default_sampling=generation.sampling,
        num_parameters=count,
        executor=executor,
        computation=f"{model.format.name.lower()} weights in compiled kernels",
    )
