"""Experts are packed in the format of the other weights, and compute what transformers' do."""

import copy
import logging
import weakref
from typing import Any

import pytest
import torch
from torch import nn
from transformers.models.mixtral.modeling_mixtral import MixtralExperts

from core.fusion.cpu.experts import PackedExperts
from core.fusion.patterns import GateKind, gate_kind
from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import Format
from tests.core.fusion.test_cpu import installed, logits
from tests.support.mixtures import MIXTURES, mixture

pytestmark = pytest.mark.skipif(kernels() is None, reason="no C++ compiler")

NUM_LAYERS = 2

WIDE = {"hidden_size": 256, "moe_intermediate_size": 128, "num_experts": 32, "head_dim": 32}
"""Most parameters are experts', and the padding of panels hardly counts."""


def fresh(family: str, **more: Any) -> Any:
    model = mixture(family, **more)
    model.set_attn_implementation("eager")
    return model


def packed_experts(model: Any) -> list[PackedExperts]:
    return [module for module in model.modules() if isinstance(module, PackedExperts)]


@pytest.mark.parametrize("family", sorted(MIXTURES))
def test_every_family_computes_the_same(family: str) -> None:
    model = fresh(family)
    expected = logits(model)
    assert installed(model, Format.FLOAT32)["experts"] == NUM_LAYERS
    torch.testing.assert_close(logits(model), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", sorted(MIXTURES))
def test_bfloat16_is_nearer_to_float32_than_transformers(family: str) -> None:
    model = fresh(family).bfloat16()
    exact = logits(copy.deepcopy(model).float())
    theirs = (logits(model) - exact).abs().mean()
    assert installed(model, Format.BFLOAT16)["experts"] == NUM_LAYERS
    assert (logits(model) - exact).abs().mean() < theirs


@pytest.mark.parametrize("family", sorted(MIXTURES))
def test_int8_logits_are_close(family: str) -> None:
    model = fresh(family)
    expected = logits(model)
    assert installed(model, Format.INT8)["experts"] == NUM_LAYERS
    assert (logits(model) - expected).abs().mean() < 0.1 * expected.std()


@pytest.mark.parametrize(
    ("fmt", "most"), [(Format.FLOAT32, 4.1), (Format.BFLOAT16, 2.1), (Format.INT8, 1.2)]
)
def test_bytes_per_parameter_are_logged(
    fmt: Format, most: float, caplog: pytest.LogCaptureFixture
) -> None:
    model = fresh("qwen3_moe", **WIDE)
    if fmt is not Format.FLOAT32:
        model = model.bfloat16()
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    with caplog.at_level(logging.INFO, "roseinfer.core"):
        installed(model, fmt)
    [line] = [r for r in caplog.records if r.getMessage().startswith("weights: ")]
    megabytes, per_parameter = line.args
    assert per_parameter <= most
    assert megabytes == f"{per_parameter * num_parameters / 1e6:,.0f}"
    packed = sum(e.first.nbytes + e.second.nbytes for e in packed_experts(model))
    kept = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    assert 0.7 * most < (packed + kept) / num_parameters < per_parameter


def test_the_original_weights_are_freed() -> None:
    model = fresh("gpt_oss").bfloat16()  # its activation belongs to the original module
    weights = [
        weakref.ref(parameter)
        for name, parameter in model.named_parameters()
        if "experts.gate_up_proj" in name or "experts.down_proj" in name
    ]
    assert len(weights) == 4 * NUM_LAYERS
    installed(model, Format.BFLOAT16)
    assert not any(reference() is not None for reference in weights)


class HalfExperts(MixtralExperts):
    """Computes half of what experts with such parameters do."""

    def forward(self, *args: Any) -> torch.Tensor:
        return super().forward(*args) / 2


def test_experts_that_compute_something_else_are_not_replaced() -> None:
    model = fresh("mixtral")
    model.model.layers[0].mlp.experts.__class__ = HalfExperts
    expected = logits(model)
    assert installed(model, Format.FLOAT32)["experts"] == NUM_LAYERS - 1
    torch.testing.assert_close(logits(model), expected, rtol=1e-4, atol=1e-4)


def test_a_gate_is_recognised_by_its_values() -> None:
    def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        left, right = x.chunk(2, dim=-1)
        return left, right

    silu = nn.functional.silu

    def clamped(x: torch.Tensor, limit: float, slope: float) -> torch.Tensor:
        gate, up = x[..., ::2].clamp(max=limit), x[..., 1::2].clamp(-limit, limit)
        return (up + 1) * gate * torch.sigmoid(gate * slope)

    assert gate_kind(lambda x: silu(halves(x)[0]) * halves(x)[1]) == GateKind("silu", False)
    assert gate_kind(lambda x: silu(x[..., ::2]) * x[..., 1::2]) == GateKind("silu", True)
    assert gate_kind(lambda x: clamped(x, 7.0, 1.702)) == GateKind("clamped", True)
    assert gate_kind(lambda x: clamped(x, 8.0, 1.702)) is None
    assert gate_kind(lambda x: clamped(x, 7.0, 1.7)) is None
    assert gate_kind(lambda x: silu(halves(x)[1]) * halves(x)[0]) is None
    assert gate_kind(lambda x: silu(halves(x)[0].clamp(max=20)) * halves(x)[1]) is None
    assert gate_kind(lambda x: silu(halves(x)[0]) * halves(x)[1].clamp(-20, 20)) is None


def of_one_layer(family: str, fmt: Format) -> PackedExperts:
    model = fresh(family)
    installed(model, fmt)
    return packed_experts(model)[0]


@pytest.mark.parametrize("fmt", [Format.FLOAT32, Format.BFLOAT16, Format.INT8])
@pytest.mark.parametrize("family", ["gpt_oss", "mixtral"])
def test_a_token_does_not_depend_on_its_batch(family: str, fmt: Format) -> None:
    experts = of_one_layer(family, fmt)
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(70, 48, generator=generator)
    index = torch.stack([torch.randperm(4, generator=generator)[:2] for _ in range(70)])
    weights = torch.rand(70, 2, generator=generator)
    together = experts(x, index, weights)
    for rows in (slice(0, 1), slice(5, 7), slice(20, 63)):
        assert torch.equal(experts(x[rows], index[rows], weights[rows]), together[rows])


def test_an_index_past_the_last_expert_adds_nothing() -> None:
    experts = of_one_layer("mixtral", Format.FLOAT32)
    x, weights = torch.randn(3, 48), torch.rand(3, 2)
    num_experts = experts.first.num_groups
    some = experts(x, torch.tensor([[0, num_experts], [num_experts, 1], [2, 3]]), weights)
    first = experts(x, torch.tensor([[0], [1], [2]]), weights[[0, 1, 2], [0, 1, 0]][:, None])
    torch.testing.assert_close(some[:2], first[:2])
    none = experts(x, torch.full((3, 2), num_experts), weights)
    assert torch.equal(none, torch.zeros(3, 48))
