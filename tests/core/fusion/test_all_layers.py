"""All decoder layers in one call of the kernel: the same bits as one layer after the other."""

import copy
from typing import Any

import pytest
import torch

from core.attention.cpu_backend import PagedCPUBackend
from core.contract.messages import StepOutput
from core.engine import Engine
from core.fusion.cpu.catalogue import fuse_for_cpu
from core.fusion.cpu.layer import FusedLayer
from core.fusion.cpu.mixture import FusedMixture
from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import Format
from core.model.hook import AttentionHook
from tests.support.checkpoints import tiny_model
from tests.support.each import each
from tests.support.mixtures import MIXTURES, mixture, shared_mixture
from tests.support.threads import num_threads
from tests.support.tiny_engine import build_engine, request, run

FAMILIES = ("gpt2", "qwen3", "mistral", *sorted(MIXTURES))
FORMATS = (Format.FLOAT32, Format.BFLOAT16, Format.INT8)
KERNELS = kernels()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="no C++ compiler")


class Timed:
    """A backend around the kernel, as a benchmark has it: layers cannot call the kernel."""

    def __init__(self, *arguments: Any) -> None:
        self._backend = PagedCPUBackend(*arguments)
        self.plan, self.forward = self._backend.plan, self._backend.forward


def fused_engine(family: str, fmt: Format, backend: Any, model: Any = None) -> Engine:
    def fuse(model: Any, hook: AttentionHook) -> None:
        attention = list(zip(hook.modules, hook.layers, strict=True))
        assert fuse_for_cpu(KERNELS, model, attention, fmt)["decoder"]

    original = shared_mixture(family) if family in MIXTURES else tiny_model(family)
    model = copy.deepcopy(model or original)
    windows = 60 if family in ("mistral", "gpt_oss") else None
    return build_engine(
        family, model=model, prepare=fuse, backend=backend, num_window_blocks=windows
    )


def outputs(engine: Engine) -> dict[str, list[StepOutput]]:
    """Prompts in chunks beside decoding sequences; without the times of the work."""
    prompts = [range(3, 3 + length) for length in (90, 5, 33)]
    requests = [request(f"r{i}", [*ids], 6, logprobs=2) for i, ids in enumerate(prompts)]
    found = run(engine, requests)
    return {name: [output.after(None) for output in each] for name, each in found.items()}


@each("family, fmt", [(f, fmt) for f in FAMILIES for fmt in FORMATS])
def test_the_same_bits_as_layer_by_layer(family: str, fmt: Format) -> None:
    with num_threads(2):
        together = outputs(fused_engine(family, fmt, PagedCPUBackend))
    assert together == outputs(fused_engine(family, fmt, Timed))


@each("family, fmt", [(f, fmt) for f in ("gpt2", "qwen3") for fmt in FORMATS])
def test_a_feed_forward_block_has_the_bits_of_its_products(
    family: str, fmt: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel writes the first product's result in the form in which the second reads it."""
    is_equal: list[bool] = []
    original = FusedLayer.forward

    def forward(self: FusedLayer, *args: Any, **kwargs: Any) -> torch.Tensor:
        y = original(self, *args, **kwargs)
        parts = self._parts
        assert not isinstance(parts.mlp, FusedMixture)
        products = parts.mlp(parts.second_norm(self.hidden))
        is_equal.append(torch.equal(y[0], self.hidden + products))
        return y

    engine = fused_engine(family, fmt, Timed)
    monkeypatch.setattr(FusedLayer, "forward", forward)
    outputs(engine)
    assert is_equal
    assert all(is_equal)


def test_threads_that_come_late_pass_the_same_stages() -> None:
    """They would otherwise read how many rows an expert of a later layer has."""
    sizes = {"hidden_size": 128, "num_experts": 16, "moe_intermediate_size": 64}
    model = mixture("qwen3_moe", num_hidden_layers=8, **sizes)
    found = []
    for count in (1, 12):
        with num_threads(count):
            engine = fused_engine("qwen3_moe", Format.FLOAT32, PagedCPUBackend, model=model)
            found.append(outputs(engine))
    assert found[0] == found[1]


def test_layers_are_called_together_only_if_attention_is_a_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[FusedLayer] = []
    original = FusedLayer.forward

    def forward(self: FusedLayer, *args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append(self)
        return original(self, *args, **kwargs)

    engines = [
        fused_engine("qwen3", Format.FLOAT32, backend) for backend in (PagedCPUBackend, Timed)
    ]
    monkeypatch.setattr(FusedLayer, "forward", forward)
    outputs(engines[0])
    assert not calls
    outputs(engines[1])
    assert calls
