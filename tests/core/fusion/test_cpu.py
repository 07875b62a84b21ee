"""On a CPU, known modules are replaced, unequal ones stay, and the model computes the same."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaMLP

from core.fusion.cpu.catalogue import fuse_for_cpu
from core.fusion.cpu.decoder import DecoderOutput
from core.fusion.cpu.head import LEAST_ROWS, PackedHead
from core.fusion.cpu.layer import FusedLayer
from core.fusion.cpu.linear import PackedLinear
from core.fusion.cpu.norm import FusedNorm
from core.fusion.joint import JointProduct
from core.fusion.patterns import activation
from core.kernels.cpu.library import kernels
from core.kernels.cpu.linear import Format, pack
from core.model.causal_attention import causal_attention
from core.model.hook import AttentionHook
from tests.support.checkpoints import CONFIGS, VOCAB_SIZE, tiny_model

KERNELS = kernels()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="no C++ compiler")

LAYERS = 4
WHOLE = {"embedding": 1, "head": 1, "layer": LAYERS, "norm": 1, "decoder": 1, "model": 1}
PARTS = {"linear": 4 * LAYERS, "mlp": LAYERS, "rotary": LAYERS, "norm": 1 + 6 * LAYERS}
INSTALLED = dict.fromkeys(CONFIGS, WHOLE) | {"gemma3": PARTS | {"head": 1}}
"""What is replaced in each family, so that a missing replacement is noticed. Gemma's layers have
more norms, and its embedding is scaled."""

IDS = (torch.arange(40) * 31 + 5) % VOCAB_SIZE


def fresh(family: str) -> Any:
    """A copy to change; other tests may have left their hook in the original."""
    model: Any = copy.deepcopy(tiny_model(family))
    model.set_attn_implementation("eager")
    return model


def installed(model: Any, fmt: Format) -> dict[str, int]:
    hook = AttentionHook(model)
    attention = list(zip(hook.modules, hook.layers, strict=True))
    counts = fuse_for_cpu(KERNELS, model, attention, fmt)
    hook.install(lambda q, k, v, layer: causal_attention(q, k, v, hook.layers[layer]))
    return dict(counts)


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        return model(IDS[None], use_cache=False).logits[0].float().clone()


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_every_family_computes_the_same_when_fused(family: str) -> None:
    model = fresh(family)
    expected = logits(model)
    assert installed(model, Format.FLOAT32) == INSTALLED[family]
    torch.testing.assert_close(logits(model), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", ["gpt2", "qwen3"])
def test_a_bfloat16_model_is_at_least_as_exact_as_in_transformers(family: str) -> None:
    model = fresh(family).bfloat16()
    exact = logits(copy.deepcopy(model).float())
    theirs = (logits(model) - exact).abs().max()
    installed(model, Format.BFLOAT16)
    assert (logits(model) - exact).abs().max() <= theirs
    assert all(parameter.dtype is torch.float32 for parameter in model.parameters())


def test_int8_logits_are_close() -> None:
    model = fresh("qwen3")
    expected = logits(model)
    assert installed(model, Format.INT8) == INSTALLED["qwen3"]
    actual = logits(model)
    assert (actual - expected).abs().mean() < 0.1 * expected.std()


class RenamedLayer(LlamaDecoderLayer):
    """A layer of another release: masks and caches, which the kernels ignore, have other names."""

    def forward(self, hidden_states, seen, *, held, position_embeddings, **more):
        return super().forward(hidden_states, seen, position_embeddings=position_embeddings, **more)


def test_names_of_masks_and_caches_do_not_matter() -> None:
    model = fresh("llama")
    expected = logits(model)
    hook = AttentionHook(model)
    for layer in model.model.layers:
        layer.__class__ = RenamedLayer
    attention = list(zip(hook.modules, hook.layers, strict=True))
    assert fuse_for_cpu(KERNELS, model, attention, Format.FLOAT32) == WHOLE
    hook.install(lambda q, k, v, layer: causal_attention(q, k, v, hook.layers[layer]))
    torch.testing.assert_close(logits(model), expected, rtol=1e-3, atol=1e-3)


def test_fields_that_a_decoder_does_not_give_are_none() -> None:
    output = DecoderOutput(torch.ones(1, 2, 3))
    assert output.past_key_values is output.cache is output.of_a_later_release is None
    assert output[0] is output.last_hidden_state
    assert copy.copy(output) == output


class HalfNorm(nn.Module):
    """Has the attributes of an RMSNorm but computes something else."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(48))
        self.eps = 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight / 2


HalfNorm.__name__ = "HalfRMSNorm"


class ScaledLinear(nn.Linear):
    """Inherits from nn.Linear but computes something else."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 3


class Backwards(nn.Module):
    """A gated block with gate and up exchanged."""

    def __init__(self, original: Any) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = original.gate_proj, original.up_proj
        self.down_proj, self.act_fn = original.down_proj, original.act_fn

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.gate_proj(x) * self.act_fn(self.up_proj(x)))


def test_modules_that_compute_something_else_are_not_replaced() -> None:
    model = fresh("llama")
    layers = model.model.layers
    layers[0].input_layernorm = HalfNorm()
    layers[1].mlp = Backwards(layers[1].mlp)
    old = layers[2].self_attn.o_proj
    layers[2].self_attn.o_proj = ScaledLinear(old.in_features, old.out_features, bias=False)
    model.requires_grad_(requires_grad=False)
    expected = logits(model)
    installed(model, Format.FLOAT32)
    assert isinstance(layers[0].input_layernorm, HalfNorm)
    assert isinstance(layers[1].mlp, Backwards)
    assert isinstance(layers[1].mlp.down_proj, PackedLinear)  # its parts are plain
    assert isinstance(layers[2].self_attn.o_proj, ScaledLinear)
    assert isinstance(layers[2].input_layernorm, FusedNorm)
    assert isinstance(layers[3], FusedLayer)
    torch.testing.assert_close(logits(model), expected, rtol=1e-3, atol=1e-3)


class HalfResidual(LlamaDecoderLayer):
    """Adds half of its feed-forward block's output. No child module shows that."""

    def forward(self, hidden_states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        attended, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)
        hidden_states = hidden_states + attended
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states)) / 2


class Unrotated(LlamaDecoderLayer):
    """Does not rotate its queries and keys, whatever the angles."""

    def forward(self, hidden_states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        cos, sin = kwargs.pop("position_embeddings")
        cos, sin = torch.ones_like(cos), torch.zeros_like(sin)
        return super().forward(hidden_states, position_embeddings=(cos, sin), **kwargs)


class ScaledMLP(LlamaMLP):
    """Has a parameter beside its children, which is 1 in the first layers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.scale


def test_a_scale_of_a_later_layer_is_not_lost() -> None:
    model = fresh("llama")
    for index, layer in enumerate(model.model.layers):
        layer.mlp.__class__ = ScaledMLP
        layer.mlp.scale = nn.Parameter(torch.tensor(1.0 if index < LAYERS - 1 else 0.5))
    expected = logits(model)
    assert installed(model, Format.FLOAT32)["layer"] == LAYERS - 1
    torch.testing.assert_close(logits(model), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("fmt", [Format.FLOAT32, Format.INT8])
@pytest.mark.parametrize("odd", [HalfResidual, Unrotated])
def test_a_layer_that_computes_something_else_is_not_fused(odd: type, fmt: Format) -> None:
    model = fresh("llama")
    layers = model.model.layers
    layers[1].__class__ = odd
    expected = logits(model)
    counts = installed(model, fmt)
    assert counts["layer"] == LAYERS - 1
    assert type(layers[1]) is odd
    tolerance = 1e-3 if fmt is Format.FLOAT32 else 0.5
    torch.testing.assert_close(logits(model), expected, rtol=tolerance, atol=tolerance)


def test_a_fused_layer_frees_the_original_weights() -> None:
    model = fresh("qwen3").bfloat16()
    installed(model, Format.BFLOAT16)
    assert not list(model.model.layers.parameters())


def test_a_layer_accepts_changing_numbers_of_tokens() -> None:
    model = fresh("qwen3")
    installed(model, Format.FLOAT32)

    def first(count: int) -> torch.Tensor:
        with torch.inference_mode():
            return model(IDS[None, :count], use_cache=False).logits[0].clone()

    whole = first(40)
    for count in (1, 33, 2, 40, 1):
        torch.testing.assert_close(first(count), whole[:count], rtol=1e-3, atol=1e-3)


def test_a_fused_decoder_accepts_embeddings() -> None:
    model = fresh("gpt2")
    expected = logits(model)
    installed(model, Format.FLOAT32)
    with torch.inference_mode():
        table = model.get_input_embeddings()(IDS[None])
        actual = model(inputs_embeds=table, use_cache=False).logits[0]
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", ["gpt2", "qwen3"])
def test_a_fused_decoder_uses_the_positions(family: str) -> None:
    model = fresh(family)
    positions = (torch.arange(40) + 7)[None]
    with torch.inference_mode():
        expected = model(IDS[None], position_ids=positions, use_cache=False).logits
        assert installed(model, Format.FLOAT32)["decoder"] == 1
        actual = model(IDS[None], position_ids=positions, use_cache=False).logits
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-3)


def test_activations_are_recognised_by_their_values() -> None:
    assert activation(nn.SiLU()) is not None
    assert activation(nn.GELU("tanh")) is not None
    assert activation(nn.GELU()) is None
    assert activation(nn.ReLU()) is None
    assert activation(nn.Bilinear(2, 2, 2)) is None


def test_a_joint_product_is_computed_for_the_tensor_passed_in() -> None:
    weight = torch.randn(12, 8)
    product = JointProduct(pack(KERNELS, [weight], [None], Format.FLOAT32), [4, 4, 4])
    x, y = torch.randn(1, 3, 8), torch.randn(1, 3, 8)

    def part(index: int, of: torch.Tensor) -> torch.Tensor:
        return of @ weight[4 * index : 4 * index + 4].T

    for index, of in [(0, x), (1, x), (2, x), (2, y), (0, y), (0, x), (0, x), (1, y)]:
        torch.testing.assert_close(product.part(index, of), part(index, of))
    for index in (0, 1, 2):
        product.part(index, x)
    x.copy_(y)  # the same tensor with new content, as in the next step
    for index in (0, 1, 2):
        torch.testing.assert_close(product.part(index, x), part(index, y))


def test_a_head_writes_up_to_eight_rows_into_the_same_memory() -> None:
    """Buffers that it has outgrown stay resident as long as their neighbours in memory."""
    weight = pack(KERNELS, [torch.randn(40, 32)], [None], Format.FLOAT32)
    head = PackedHead(weight)
    places = {head(torch.randn(1, rows, 32)).data_ptr() for rows in range(1, LEAST_ROWS + 1)}
    assert len(places) == 1
    grown = {head(torch.randn(rows, 32)).data_ptr() for rows in range(LEAST_ROWS + 1, 17)}
    assert len(grown) == 1
    assert grown != places
    assert head(torch.randn(0, 32)).shape == (0, 40)


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_rows_of_logits_start_at_cache_lines(rows: int) -> None:
    """GPT-2's vocabulary has an odd size."""
    matrices = [torch.randn(45, 32), torch.randn(20, 32)]
    weight = pack(KERNELS, matrices, [None, None], Format.FLOAT32)
    x = torch.randn(1, rows, 32)
    logits = PackedHead(weight)(x)
    assert logits.shape == (1, rows, 65)
    assert torch.equal(logits, weight.multiply(x))
    assert {row.data_ptr() % 64 for row in logits[0]} == {0}
