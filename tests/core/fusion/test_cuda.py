"""For CUDA, modules are fused if they equal the originals."""

from __future__ import annotations

import copy
import inspect
from types import FunctionType

import pytest
import torch
from transformers import GraniteConfig, GraniteForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention, Qwen3DecoderLayer

from core.fusion.cuda.catalogue import fuse_for_cuda
from core.fusion.cuda.linear import DenseWeight
from core.fusion.cuda.mlp import FusedGatedMLP
from core.fusion.cuda.norm import FusedRMSNorm
from core.fusion.cuda.ops import TritonOps
from core.fusion.cuda.residual import ResidualLinear
from core.hook.hook import AttentionHook
from core.hook.interface import ATTENTION_NAME
from tests.support.checkpoints import CONFIGS, VOCAB_SIZE, tiny_model
from tests.support.torch_ops import TorchOps

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
    """A copy of the tiny model with random weights and biases in its norms."""
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


def fused(family: str, ops: TritonOps) -> tuple[dict[str, int], torch.Tensor, torch.Tensor]:
    """What was installed, the logits before, and the logits after."""
    model = randomized(family)
    hook = AttentionHook(model)
    model.set_attn_implementation("eager")
    before = logits_of(model)
    model.set_attn_implementation(ATTENTION_NAME)
    counts = fuse_for_cuda(model, list(zip(hook.modules, hook.layers, strict=True)), ops)
    model.set_attn_implementation("eager")
    return dict(counts), before, logits_of(model)


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_a_fused_model_computes_the_same(family):
    counts, before, after = fused(family, TorchOps())
    assert counts == COUNTS[family]
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["qwen3", "gemma3"])
def test_a_model_fused_with_triton_kernels_computes_the_same(family):
    pytest.importorskip("triton")
    counts, before, after = fused(family, TritonOps())
    assert counts == COUNTS[family]
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_the_proof_succeeds_in_16_bits(family, dtype):
    model = randomized(family).to(dtype)
    hook = AttentionHook(model)
    counts = fuse_for_cuda(model, list(zip(hook.modules, hook.layers, strict=True)), TorchOps())
    assert dict(counts) == COUNTS[family]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_on_a_gpu_everything_is_fused(family, dtype):
    model = randomized(family).to("cuda", dtype)
    hook = AttentionHook(model)
    counts = fuse_for_cuda(model, list(zip(hook.modules, hook.layers, strict=True)), TritonOps())
    assert dict(counts) == COUNTS[family]


ATTEND = inspect.unwrap(Qwen3Attention.forward)


class RenamedLayer(Qwen3DecoderLayer):
    """A layer of another release: masks and caches, which are ignored, have other names."""

    def forward(self, hidden_states, seen, *, held, position_embeddings, **more):
        hidden, _ = self.self_attn(
            self.input_layernorm(hidden_states), position_embeddings, seen, held, **more
        )
        hidden = hidden + hidden_states
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class RenamedAttention(Qwen3Attention):
    forward = FunctionType(
        ATTEND.__code__.replace(
            co_varnames=tuple(
                "seen" if name == "attention_mask" else name for name in ATTEND.__code__.co_varnames
            )
        ),
        ATTEND.__globals__,
    )


def test_names_of_masks_and_caches_do_not_matter():
    model = randomized("qwen3")
    hook = AttentionHook(model)
    for layer in model.model.layers:
        layer.__class__, layer.self_attn.__class__ = RenamedLayer, RenamedAttention
    counts = fuse_for_cuda(model, list(zip(hook.modules, hook.layers, strict=True)), TorchOps())
    assert counts == COUNTS["qwen3"]


class WrongOps(TorchOps):
    """Every operation is slightly wrong."""

    def rms_norm(self, states, weight, eps, offset):
        return super().rms_norm(states, weight, eps, offset) * 1.01

    def gated(self, gate_up, activation):
        return super().gated(gate_up, activation) + 0.01

    def rotate(self, query, key, cos, sin, norm=None):
        return super().rotate(query, key, sin, cos, norm)


def test_unequal_modules_are_not_used():
    counts, before, after = fused("qwen3", WrongOps())
    assert counts == {"qkv": NUM_LAYERS, "residual": NUM_LAYERS}
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)


class OpsWithoutNorm(TorchOps):
    """RoPE that leaves out the norm."""

    def rotate(self, query, key, cos, sin, norm=None):
        return super().rotate(query, key, cos, sin)


def test_head_norms_stay_if_rope_with_norm_is_not_equal():
    counts, before, after = fused("qwen3", OpsWithoutNorm())
    assert counts == {name: n for name, n in COUNTS["qwen3"].items() if name != "head norm"}
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_a_layer_that_scales_its_sums_keeps_its_forward_code(factor):
    """Granite has Llama's parts, but scales what it adds to the residual stream."""
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
    counts = fuse_for_cuda(model, list(zip(hook.modules, hook.layers, strict=True)), TorchOps())
    assert counts["residual"] == (2 if factor == 1.0 else 0)
    torch.testing.assert_close(logits_of(model), before, rtol=1e-4, atol=1e-4)


def test_a_product_is_added_to_the_residual_stream_once():
    generator = torch.Generator().manual_seed(0)
    weight, x, stream = (
        torch.randn(n, generator=generator) for n in ((6, 4), (1, 3, 4), (1, 3, 6))
    )
    linear, expected = ResidualLinear(weight), stream + x @ weight.T
    linear.add_to(stream)
    assert linear(x) is stream
    torch.testing.assert_close(stream, expected)
    torch.testing.assert_close(linear(x), x @ weight.T)


def test_stacked_matrices_multiply_like_each_alone():
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randn(n, 6, generator=generator) for n in (3, 5))
    bias = torch.randn(5, generator=generator)
    x = torch.randn(2, 6, generator=generator)
    product = DenseWeight([(first, None), (second, bias)]).multiply(x)
    torch.testing.assert_close(product[:, :3], x @ first.T)
    torch.testing.assert_close(product[:, 3:], x @ second.T + bias)
    torch.testing.assert_close(DenseWeight([(first, None)]).multiply(x), x @ first.T)


def test_fusing_frees_the_original_weights():
    model = randomized("llama")
    hook = AttentionHook(model)
    fuse_for_cuda(model, list(zip(hook.modules, hook.layers, strict=True)), TorchOps())
    kinds = [type(module) for module in model.modules()]
    assert kinds.count(FusedGatedMLP) == NUM_LAYERS
    assert kinds.count(FusedRMSNorm) == 2 * NUM_LAYERS + 1
    assert not {"q_proj.weight", "gate_proj.weight"} & {
        ".".join(name.split(".")[-2:]) for name, _ in model.named_parameters()
    }
