"""Layers with experts are computed by the layer kernel, router included, or stay as they are."""

from types import MethodType
from typing import Any

import pytest
import torch
from torch import nn

from core.fusion.cpu.catalogue import fuse_for_cpu
from core.fusion.cpu.layer import FusedLayer
from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import Format
from core.model.causal_attention import causal_attention
from core.model.hook import AttentionHook
from tests.core.fusion.test_cpu import IDS, installed, logits
from tests.support.builds import BUILDS, build
from tests.support.each import each
from tests.support.mixtures import MIXTURES, mixture
from tests.zoo.shrink import tiny_config, tiny_model

pytestmark = pytest.mark.skipif(kernels() is None, reason="no C++ compiler")

NUM_LAYERS = 2
WHOLE = {
    "decoder": 1,
    "model": 1,
    "embedding": 1,
    "experts": NUM_LAYERS,
    "head": 1,
    "layer": NUM_LAYERS,
    "norm": 1,
}


def fresh(family: str, **more: Any) -> Any:
    model = mixture(family, **more)
    model.set_attn_implementation("eager")
    return model


@each("family", sorted(MIXTURES))
@each("fmt", [Format.FLOAT32, Format.BFLOAT16, Format.INT8])
def test_all_of_a_model_is_fused(family: str, fmt: Format) -> None:
    assert installed(fresh(family), fmt) == WHOLE


@pytest.mark.parametrize("name", BUILDS)
@each("family", sorted(MIXTURES))
def test_kernels_of_every_cpu_compute_the_same(name: str, family: str) -> None:
    model = fresh(family)
    expected = logits(model)
    hook = AttentionHook(model)
    attention = list(zip(hook.modules, hook.layers, strict=True))
    assert fuse_for_cpu(build(name), model, attention, Format.FLOAT32) == WHOLE
    hook.install(lambda q, k, v, layer: causal_attention(q, k, v, hook.layers[layer]))
    torch.testing.assert_close(logits(model), expected, rtol=1e-4, atol=1e-4)


@each("normalises", [False, True])
@each("family", ["qwen3_moe", "olmoe"])
def test_weights_of_experts_as_the_router_has_them(family: str, normalises: bool) -> None:
    model = fresh(family, norm_topk_prob=normalises)
    expected = logits(model)
    assert installed(model, Format.FLOAT32) == WHOLE
    torch.testing.assert_close(logits(model), expected, rtol=1e-4, atol=1e-4)


def fused_layer(family: str) -> FusedLayer:
    model = fresh(family)
    installed(model, Format.FLOAT32)
    layer = model.model.layers[0]
    assert isinstance(layer, FusedLayer)
    return layer


def computed(layer: FusedLayer, x: torch.Tensor) -> torch.Tensor:
    """The output for tokens of one position, which attend to all of them."""
    angles = (torch.ones(1, x.shape[1], 16), torch.zeros(1, x.shape[1], 16))
    with torch.inference_mode():
        return layer(x, position_embeddings=angles)[0].clone()


def test_every_number_of_experts_and_choices() -> None:
    """One vector of logits, a part of one, and several; one expert of a token, and all."""
    for num_experts, per_token in ((1, 1), (3, 3), (16, 1), (21, 5), (40, 40)):
        model = fresh("qwen3_moe", num_experts=num_experts, num_experts_per_tok=per_token)
        expected = logits(model)
        assert installed(model, Format.FLOAT32) == WHOLE
        torch.testing.assert_close(logits(model), expected, rtol=1e-4, atol=1e-4)


def test_a_token_that_is_not_a_number_spoils_no_other() -> None:
    """The router of NaN chooses experts that exist."""
    layer = fused_layer("qwen3_moe")
    layer.attention.roseinfer_attention = lambda q, *_: torch.zeros(len(q), q.shape[1] * 16)
    torch.manual_seed(0)
    x = torch.randn(1, 9, 48)
    expected = computed(layer, x)
    for row, value in ((0, torch.nan), (4, torch.inf), (8, -torch.nan)):
        spoilt = x.clone()
        spoilt[0, row, 7] = value
        found = computed(layer, spoilt)
        assert found[row].isnan().any()
        others = [i for i in range(9) if i != row]
        assert torch.equal(found[others], expected[others])


def logits_of(router: Any, x: torch.Tensor) -> torch.Tensor:
    return nn.functional.linear(x.reshape(-1, router.hidden_dim), router.weight)


def by_sigmoid(router: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    weights, chosen = logits_of(router, x).sigmoid().topk(router.top_k)
    return logits_of(router, x), weights / weights.sum(-1, keepdim=True), chosen


def scaled(router: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    weights, chosen = logits_of(router, x).softmax(-1).topk(router.top_k)
    return logits_of(router, x), weights * 2.5, chosen


def never_the_first(router: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    weights, chosen = logits_of(router, x)[:, 1:].softmax(-1).topk(router.top_k)
    return logits_of(router, x), weights / weights.sum(-1, keepdim=True), chosen + 1


def plus_input(block: Any, x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = type(block).__base__.forward(block, x)
    return found + x


@each(
    "name, forward",
    [("gate", by_sigmoid), ("gate", scaled), ("gate", never_the_first), ("", plus_input)],
)
@each("is_class", [True, False])
def test_what_computes_something_else_stays(name: str, forward: Any, is_class: bool) -> None:
    """Whether its class does so or only its own function."""
    model = fresh("qwen3_moe")
    module = model.model.layers[0].mlp.get_submodule(name)
    module.__class__ = type("Other", (type(module),), {"forward": forward} if is_class else {})
    if not is_class:
        module.forward = MethodType(forward, module)
    expected = logits(model)
    assert installed(model, Format.FLOAT32)["layer"] == NUM_LAYERS - 1
    torch.testing.assert_close(logits(model), expected, rtol=1e-4, atol=1e-4)


def test_angles_of_each_layer_type_leave_the_decoder() -> None:
    """Mellum asks for them with the type of a layer."""
    model = tiny_model(tiny_config("mellum"))
    model.set_attn_implementation("eager")
    ids = IDS[None] % model.config.vocab_size
    with torch.inference_mode():
        expected = model(ids, use_cache=False).logits.clone()
        counts = installed(model, Format.FLOAT32)
        assert counts["layer"] == model.config.num_hidden_layers
        assert "decoder" not in counts
        torch.testing.assert_close(model(ids, use_cache=False).logits, expected)


def test_limited_projections_stay() -> None:
    """No random input of a proof would reach the limit."""
    model = fresh("olmoe", clip_qkv=0.5)
    expected = logits(model)
    counts = installed(model, Format.FLOAT32)
    assert "layer" not in counts
    assert counts["experts"] == NUM_LAYERS
    torch.testing.assert_close(logits(model), expected, rtol=1e-4, atol=1e-4)
    unlimited = fresh("olmoe")
    assert not torch.allclose(logits(unlimited), expected, rtol=1e-2, atol=1e-2)


def test_an_error_before_the_router_does_not_refuse_a_layer() -> None:
    """Rounded attention may change which experts serve a token; the proof does not see it."""
    for fmt in (Format.BFLOAT16, Format.INT8):
        model = fresh("qwen3_moe", num_experts=64, num_experts_per_tok=8, num_hidden_layers=8)
        counts = installed(model.bfloat16(), fmt)
        assert (counts["layer"], counts["decoder"]) == (8, 1)
