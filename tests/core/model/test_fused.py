"""Leaves fused for devices that pay for each launch: equal to the originals, or not used."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import GraniteConfig, GraniteForCausalLM

from core.fusion.cuda.fuse import DenseWeight, FusedGatedMLP, FusedRMSNorm, fuse_leaves
from core.fusion.cuda.ops import Ops, TorchOps, TritonOps
from core.fusion.cuda.residual import ResidualLinear
from core.model.hook import ATTENTION_NAME, AttentionHook
from tests.support.checkpoints import CONFIGS, VOCAB_SIZE, tiny_model

NUM_LAYERS = 4
LAYER = dict.fromkeys(("qkv", "rotary", "mlp", "residual"), NUM_LAYERS)
COUNTS = {
    "gpt2": {"activation": NUM_LAYERS},
    "llama": {**LAYER, "norm": 9},
    "mistral": {**LAYER, "norm": 9},
    "qwen2": {**LAYER, "norm": 9},
    "qwen3": {**LAYER, "norm": 17, "head norm": NUM_LAYERS},
    "gemma3": {
        "qkv": NUM_LAYERS,
        "rotary": NUM_LAYERS,
        "mlp": NUM_LAYERS,
        "norm": 25,
        "head norm": NUM_LAYERS,
    },
}


def randomized(family: str) -> torch.nn.Module:
    """A copy of the tiny model whose norms' weights and biases are no ones and zeros."""
    model = copy.deepcopy(tiny_model(family))
    generator = torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def logits_of(model: torch.nn.Module) -> torch.Tensor:
    ids = torch.arange(20)[None] * 11 % VOCAB_SIZE
    with torch.inference_mode():
        return model(input_ids=ids, position_ids=torch.arange(20)[None]).logits


def fused(family: str, ops: Ops) -> tuple[dict[str, int], torch.Tensor, torch.Tensor]:
    """What was installed, the logits before, and the logits after."""
    model = randomized(family)
    hook = AttentionHook(model)
    model.set_attn_implementation("eager")
    before = logits_of(model)
    model.set_attn_implementation(ATTENTION_NAME)
    counts = fuse_leaves(model, list(zip(hook.modules, hook.layers, strict=True)), ops)
    model.set_attn_implementation("eager")
    return dict(counts), before, logits_of(model)


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_a_fused_model_computes_the_same(family):
    counts, before, after = fused(family, TorchOps())
    assert counts == COUNTS[family]
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["qwen3", "gemma3"])
def test_with_our_triton_kernels(family):
    pytest.importorskip("triton")
    counts, before, after = fused(family, TritonOps())
    assert counts == COUNTS[family]
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_16_bits_are_exact_enough_to_be_proved(family, dtype):
    model = randomized(family).to(dtype)
    hook = AttentionHook(model)
    counts = fuse_leaves(model, list(zip(hook.modules, hook.layers, strict=True)), TorchOps())
    assert dict(counts) == COUNTS[family]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_on_a_gpu_everything_is_fused(family, dtype):
    model = randomized(family).to("cuda", dtype)
    hook = AttentionHook(model)
    counts = fuse_leaves(model, list(zip(hook.modules, hook.layers, strict=True)), TritonOps())
    assert dict(counts) == COUNTS[family]


class WrongOps(TorchOps):
    """Everything slightly wrong."""

    def rms_norm(self, states, weight, eps, offset):
        return super().rms_norm(states, weight, eps, offset) * 1.01

    def gated(self, gate_up, activation):
        return super().gated(gate_up, activation) + 0.01

    def rotate(self, query, key, cos, sin, norm=None):
        return super().rotate(query, key, sin, cos, norm)


def test_what_is_not_equal_is_not_used():
    counts, before, after = fused("qwen3", WrongOps())
    assert counts == {"qkv": NUM_LAYERS, "residual": NUM_LAYERS}
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)


class OpsWithoutNorm(TorchOps):
    """A rotation that forgets the norm before it."""

    def rotate(self, query, key, cos, sin, norm=None):
        return super().rotate(query, key, cos, sin)


def test_a_norm_that_is_not_where_it_seems_stays():
    counts, before, after = fused("qwen3", OpsWithoutNorm())
    assert counts == {name: n for name, n in COUNTS["qwen3"].items() if name != "head norm"}
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_a_layer_that_does_more_than_add_keeps_its_own_code(factor):
    """Granite's has the same parts, and multiplies what it adds."""
    config = GraniteConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        residual_multiplier=factor,
    )
    model = GraniteForCausalLM(config).eval()
    hook = AttentionHook(model)
    model.set_attn_implementation("eager")
    before = logits_of(model)
    counts = fuse_leaves(model, list(zip(hook.modules, hook.layers, strict=True)), TorchOps())
    assert counts["residual"] == (2 if factor == 1.0 else 0)
    torch.testing.assert_close(logits_of(model), before, rtol=1e-4, atol=1e-4)


def test_a_product_is_added_to_the_stream_once():
    generator = torch.Generator().manual_seed(0)
    weight, x, stream = (
        torch.randn(n, generator=generator) for n in ((6, 4), (1, 3, 4), (1, 3, 6))
    )
    linear, expected = ResidualLinear(weight), stream + x @ weight.T
    linear.add_to(stream)
    assert linear(x) is stream
    torch.testing.assert_close(stream, expected)
    torch.testing.assert_close(linear(x), x @ weight.T)


def test_matrices_below_each_other():
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randn(n, 6, generator=generator) for n in (3, 5))
    bias = torch.randn(5, generator=generator)
    x = torch.randn(2, 6, generator=generator)
    product = DenseWeight([(first, None), (second, bias)]).multiply(x)
    torch.testing.assert_close(product[:, :3], x @ first.T)
    torch.testing.assert_close(product[:, 3:], x @ second.T + bias)
    torch.testing.assert_close(DenseWeight([(first, None)]).multiply(x), x @ first.T)


def test_what_is_replaced_is_gone():
    model = randomized("llama")
    hook = AttentionHook(model)
    fuse_leaves(model, list(zip(hook.modules, hook.layers, strict=True)), TorchOps())
    kinds = [type(module) for module in model.modules()]
    assert kinds.count(FusedGatedMLP) == NUM_LAYERS
    assert kinds.count(FusedRMSNorm) == 2 * NUM_LAYERS + 1
    assert not {"q_proj.weight", "gate_proj.weight"} & {
        ".".join(name.split(".")[-2:]) for name, _ in model.named_parameters()
    }
