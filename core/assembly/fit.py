"""estimate_fit: whether a model would fit into memory, without loading its weights.

The module is built without memory, and everything else is the engine's own arithmetic: attention's
layers, the limits, the blocks of the KV cache. What is estimated is the size of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.assembly.attention import attention_factory
from core.attention.layer_groups import groups_on
from core.contract.config import EngineConfig, ModelConfig
from core.executors.attention_shapes import layer_spec
from core.executors.described import Described, described_and
from core.executors.load import check_tensors, model_of, weights_nbytes
from core.hook.hook import AttentionHook
from core.kernels.cpu.library import kernels
from core.load.devices import pick_device
from core.module.skeleton import build_skeleton
from core.run.limits import Limits
from core.sizing.budget import on_cpu
from core.sizing.cache import kv_dtype, plan_cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What a server of the model would have. Sizes are bytes, counts are tokens.

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
    budget = on_cpu(
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
