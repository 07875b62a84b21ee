"""Models with matrices quantised for a GPU, run by Triton's interpreter."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("triton")

from core.assembly.accelerate import accelerate, accelerate_on_cuda
from core.contract.config import Quantization
from core.contract.errors import ModelLoadError
from core.fusion.cuda.catalogue import fuse_for_cuda
from core.fusion.cuda.linear import WeightLinear
from core.fusion.cuda.ops import TritonOps
from core.fusion.cuda.quantised import FORMATS, quantise
from core.fusion.patterns import matrix_of
from core.hook.hook import AttentionHook
from core.kernels.triton.types import IS_INTERPRETED
from core.load.loaded_model import LoadedModel
from tests.support.checkpoints import VOCAB_SIZE, tiny_model
from tests.support.tiny_engine import build_engine, prompts, request, run, token_ids
from tests.support.torch_ops import TorchOps

pytestmark = pytest.mark.skipif(not IS_INTERPRETED, reason="Triton's interpreter is not on")

NUM_LAYERS = 4
COUNTS = {
    "gpt2": {"activation": NUM_LAYERS, "linear": 4 * NUM_LAYERS + 1},
    "qwen2": {
        "qkv": NUM_LAYERS,
        "rotary": NUM_LAYERS,
        "mlp": NUM_LAYERS,
        "norm": 9,
        "linear": 2 * NUM_LAYERS + 1,
    },
}


def fuser(quantization: Quantization) -> Callable[[nn.Module, AttentionHook], object]:
    def prepare(model: nn.Module, hook: AttentionHook) -> None:
        attention = list(zip(hook.modules, hook.layers, strict=True))
        counts = fuse_for_cuda(model, attention, TorchOps(), quantization)
        assert counts == COUNTS[model.config.model_type]

    return prepare


def dequantised(family: str, quantization: Quantization) -> Any:
    """The model with quantised values in its matrices; the embedding keeps its own."""
    model: Any = copy.deepcopy(tiny_model(family))
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if head.weight is embedding.weight:
        head.weight = nn.Parameter(head.weight.clone(), requires_grad=False)
    for module in model.modules():
        matrix = matrix_of(module)
        if matrix is not None:
            stored, scale = quantise(matrix[0], FORMATS[quantization])
            matrix[0].copy_(stored.float() * scale[:, None])
    return model


@pytest.mark.slow
@pytest.mark.parametrize("quantization", FORMATS)
@pytest.mark.parametrize("family", sorted(COUNTS))
def test_greedy_tokens_are_those_of_the_dequantised_model(
    family: str, quantization: Quantization
) -> None:
    asked = [request(str(i), ids, 3) for i, ids in enumerate(prompts(5)[1:5])]
    expected = run(build_engine(family, model=dequantised(family, quantization)), asked)
    model = copy.deepcopy(tiny_model(family))
    actual = run(build_engine(family, model=model, prepare=fuser(quantization)), asked)
    for name, outputs in expected.items():
        assert token_ids(actual[name]) == token_ids(outputs)


def test_originals_are_freed_and_a_tied_embedding_stays() -> None:
    model: Any = copy.deepcopy(tiny_model("gpt2"))
    table = model.get_input_embeddings().weight
    assert model.get_output_embeddings().weight is table
    fuser("int8")(model, AttentionHook(model))
    assert model.get_input_embeddings().weight is table
    assert [p for p in model.parameters() if p.dim() > 1 and p is not table] == [
        model.transformer.wpe.weight
    ]
    kinds = [type(module) for module in model.modules()]
    assert kinds.count(WeightLinear) == COUNTS["gpt2"]["linear"]
    assert model.lm_head(torch.zeros(1, 1, 48)).shape == (1, 1, VOCAB_SIZE)


def loaded(family: str) -> LoadedModel:
    return LoadedModel(
        module=copy.deepcopy(tiny_model(family)),
        device=torch.device("cpu"),
        dtype=torch.float32,
        vocab_size=VOCAB_SIZE,
        max_model_len=256,
        eos_token_ids=frozenset(),
        default_sampling={},
    )


def test_a_quantised_model_on_a_gpu_is_described() -> None:
    model = loaded("gpt2")
    done = accelerate_on_cuda(model, AttentionHook(model.module), TritonOps(), "int8")
    assert done.description == "int8 weights, fused modules (4 activation, 17 linear)"
    assert str(done.path) == "module by module"


def test_fp8_on_a_cpu_is_refused() -> None:
    model = loaded("gpt2")
    with pytest.raises(ModelLoadError, match="fp8 needs CUDA"):
        accelerate(model, AttentionHook(model.module), "fp8")


def test_a_model_without_linear_layers_cannot_be_quantised() -> None:
    model = loaded("gpt2")
    hook = AttentionHook(model.module)
    for module in [m for m in model.module.modules() if matrix_of(m) is not None]:
        module.__class__ = type("Strange", (type(module),), {})
    with pytest.raises(ModelLoadError, match="no linear layer in GPT2LMHeadModel"):
        accelerate_on_cuda(model, hook, TritonOps(), "int8")
