"""Trials of a load without its weights: whether the model fits into memory, and its path."""

from __future__ import annotations

from dataclasses import dataclass

from core.assembly.accelerate import attention_factory
from core.attention.groups import groups_on
from core.contract.config import EngineConfig, ModelConfig
from core.contract.info import ONE_CALL, ModelPath
from core.executors.attention_shapes import layer_spec
from core.executors.described import Described, described_and
from core.executors.load import check_tensors, model_of, weights_nbytes
from core.hook.hook import AttentionHook
from core.kernels.cpu.library import kernels
from core.load.devices import pick_device
from core.module.skeleton import build_skeleton
from core.run.limits import Limits
from core.sizing.budget import cpu_cache_budget
from core.sizing.cache import kv_dtype, plan_cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Sizes of a server of the model: of memory in bytes, of contexts and the cache in tokens.

    ``own_context`` is the model's context or the operator's; memory may lower it to
    ``max_model_len``.
    """

    dtype: str
    weights_nbytes: int
    own_context: int
    max_model_len: int
    num_kv_tokens: int


def estimate_fit(model_config: ModelConfig, config: EngineConfig) -> Fit:
    """Estimate, for a CPU. Raises ModelLoadError if the model would not fit or not load."""
    device = pick_device(model_config.device)
    if device.type != "cpu":
        raise NotImplementedError("the fit on a GPU is not estimated")
    known = described_and(model_config, config.attention_backend, check_tensors)
    if isinstance(known, Described):
        model, nbytes, backend = model_of(known), weights_nbytes(known), "cpu"
        layers = [layer_spec(layer.mixer) for layer in known.spec.layers]
    else:
        model = build_skeleton(model_config, device)
        nbytes = sum(parameter.nbytes for parameter in set(model.module.parameters()))
        layers = AttentionHook(model.module).layers
        backend = config.attention_backend
        if backend == "auto":
            backend = "torch" if kernels() is None else "cpu"
    limits = Limits.of(model, config)
    cache_dtype = kv_dtype(model, config)
    budget = cpu_cache_budget(
        model, layers, attention_factory(backend, model, config), limits, to_load=nbytes
    )
    fixed = config.kv_cache_memory
    groups = groups_on(device, layers, limits.max_model_len)
    num_blocks, planned = plan_cache(
        groups, budget if fixed is None else lambda _length: fixed, limits, config, cache_dtype
    )
    return Fit(
        dtype=str(model.dtype).removeprefix("torch."),
        weights_nbytes=nbytes,
        own_context=limits.max_model_len,
        max_model_len=planned.max_model_len,
        num_kv_tokens=num_blocks[0] * limits.block_size,
    )


def try_path(model_config: ModelConfig, config: EngineConfig) -> ModelPath:
    """The path on a CPU. Raises ModelLoadError, and NotImplementedError where it is not known."""
    if pick_device(model_config.device).type != "cpu":
        raise NotImplementedError("the path on a GPU is not tried")
    one_call = ModelPath(name=ONE_CALL, expected=ONE_CALL)
    found = described_and(model_config, config.attention_backend, lambda _found: one_call)
    if isinstance(found, ModelPath):
        return found
    if not found.has_row:
        return ModelPath()
    return ModelPath(expected=ONE_CALL, slower_because=found.reason)
