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
from core.executors.described import described
from core.executors.load import check_tensors, model_of, weights_nbytes
from core.fusion.cpu.available import cpu_kernels
from core.model.budget import on_cpu
from core.model.cache import kv_dtype, plan_cache
from core.model.devices import pick_device
from core.model.hook import AttentionHook
from core.model.limits import Limits
from core.models.spec import Undescribed
from core.skeleton import Skeleton, build_skeleton


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
    try:
        known = described(model_config, config.attention_backend)
        check_tensors(known)
    except Undescribed:
        skeleton = build_skeleton(model_config, device)
        if device.type != "cpu":
            raise NotImplementedError("the fit on a GPU is not estimated") from None
        layers = AttentionHook(skeleton.model.module).layers
        backend: str = config.attention_backend
        if backend == "auto":
            has_kernels = cpu_kernels(skeleton.model, model_config.quantization) is not None
            backend = "cpu" if has_kernels else "torch"
    else:
        skeleton, backend = Skeleton(model_of(known), weights_nbytes(known), in_blocks=False), "cpu"
        layers = [layer_spec(layer.mixer) for layer in known.spec.layers]
    model, limits = skeleton.model, Limits.of(skeleton.model, config)
    cache_dtype = kv_dtype(model, config, in_blocks=skeleton.in_blocks and backend == "cpu")
    budget = on_cpu(
        model, layers, attention_factory(backend, model, config), limits, to_load=skeleton.nbytes
    )
    fixed = config.kv_cache_memory
    groups = groups_on(device, layers, limits.max_model_len)
    num_blocks, planned = plan_cache(
        groups, budget if fixed is None else lambda _length: fixed, limits, config, cache_dtype
    )
    return Fit(
        dtype=str(model.dtype).removeprefix("torch."),
        weights_nbytes=skeleton.nbytes,
        own_context=limits.max_model_len,
        max_model_len=planned.max_model_len,
        num_kv_tokens=num_blocks[0] * limits.block_size,
    )
