"""Quantised checkpoints are served, or refused with the name of their method."""

import copy
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, TorchAoConfig

from core.assembly.accelerate import accelerate
from core.contract.config import ModelConfig
from core.contract.errors import ModelLoadError
from core.fusion.cuda.catalogue import fuse_for_cuda
from core.fusion.patterns import matrix_of
from core.hook.hook import AttentionHook
from core.module.loader import load_model
from core.module.plain import activation_dtype, is_plain
from core.module.prequantised import move, placement
from tests.support.checkpoints import VOCAB_SIZE, tiny_model
from tests.support.quantizers import EightsLinear, save_quantised
from tests.support.tiny_engine import build_engine, prompts, request, run, token_ids
from tests.support.torch_ops import TorchOps

pytestmark = pytest.mark.slow

NUM_LAYERS = 4
FAMILIES = ["llama", "qwen2", "gemma3"]


def clean(family: str) -> Any:
    model: Any = copy.deepcopy(tiny_model(family))
    model.set_attn_implementation("eager")
    return model


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any]]:
    """For each family a quantised checkpoint, and the model with the same values."""
    found = {}
    for family in FAMILIES:
        directory = tmp_path_factory.mktemp(family)
        found[family] = directory, save_quantised(clean(family), directory)
    return found


def answers(family: str, model: Any, **options: Any) -> dict[str, list[int]]:
    asked = [request(str(i), ids, 6) for i, ids in enumerate(prompts(5)[:5])]
    found = run(build_engine(family, model=model, **options), asked)
    return {name: token_ids(outputs) for name, outputs in found.items()}


def attention_of(hook: AttentionHook) -> Any:
    return list(zip(hook.modules, hook.layers, strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_quantised_layers_are_loaded_unchanged(
    family: str, checkpoints: dict[str, tuple[Path, Any]]
) -> None:
    directory, meant = checkpoints[family]
    loaded = load_model(ModelConfig(model=str(directory), device="cpu"))
    kinds = [type(module) for module in loaded.module.modules()]
    assert kinds.count(EightsLinear) == 7 * NUM_LAYERS
    assert loaded.dtype is torch.float32
    assert answers(family, loaded.module) == answers(family, meant)


@pytest.mark.parametrize("family", FAMILIES)
def test_fused_for_a_gpu_only_plain_modules_are_replaced(
    family: str, checkpoints: dict[str, tuple[Path, Any]]
) -> None:
    """Norms and RoPE are replaced, quantised matrices stay."""
    directory, meant = checkpoints[family]
    loaded = load_model(ModelConfig(model=str(directory), device="cpu"))
    counts: dict[str, int] = {}

    def prepare(model: nn.Module, hook: AttentionHook) -> None:
        counts.update(fuse_for_cuda(model, attention_of(hook), TorchOps()))

    assert answers(family, loaded.module, prepare=prepare) == answers(family, meant)
    assert counts["rotary"] == NUM_LAYERS
    assert counts["norm"] >= 2 * NUM_LAYERS + 1
    assert not {"linear", "mlp", "qkv", "residual"} & counts.keys()


def test_an_explicit_type_is_used(checkpoints: dict[str, tuple[Path, Any]]) -> None:
    directory, _ = checkpoints["llama"]
    loaded = load_model(ModelConfig(model=str(directory), device="cpu", dtype="bfloat16"))
    assert loaded.dtype is torch.bfloat16
    done = accelerate(loaded, AttentionHook(loaded.module), "none")
    assert done.description == "torch's own kernels"


def test_a_method_that_dequantises_at_load_gives_a_plain_model(tmp_path: Path) -> None:
    """fp8 does so on machines without a suitable GPU."""
    save_quantised(clean("llama").bfloat16(), tmp_path, dequantize=True)
    for dtype, expected in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        loaded = load_model(ModelConfig(model=str(tmp_path), device="cpu", dtype=dtype))
        assert {p.dtype for p in loaded.module.parameters()} == {expected}
        assert matrix_of(loaded.module.model.layers[0].mlp.up_proj) is not None
        AttentionHook(loaded.module)


def test_a_quantised_checkpoint_cannot_be_quantised_again(
    checkpoints: dict[str, tuple[Path, Any]],
) -> None:
    directory, _ = checkpoints["llama"]
    message = r"--quantization int8 is not supported with .* already quantised with 'eights'"
    with pytest.raises(ModelLoadError, match=message):
        load_model(ModelConfig(model=str(directory), device="cpu", quantization="int8"))


def test_the_error_names_what_the_method_needs(tmp_path: Path) -> None:
    save_quantised(clean("llama"), tmp_path, needs="eights-kernels")
    with pytest.raises(ModelLoadError, match="'eights': needs eights-kernels") as caught:
        load_model(ModelConfig(model=str(tmp_path), device="cpu"))
    assert "\n" not in str(caught.value)


PACKAGES = {
    "gptq": "optimum",
    "awq": "gptqmodel",
    "compressed-tensors": "compressed-tensors",
    "torchao": "torchao",
    "hqq": "hqq",
    "quanto": "optimum-quanto",
    "fp8": "accelerate",
    "mxfp4": "accelerate",
}
SETTINGS = {
    "awq": {"bits": 4, "group_size": 16},
    "gptq": {"bits": 4},
    "torchao": {"quant_type": {"default": {"_type": "Int8WeightOnlyConfig", "_data": {}}}},
}


@pytest.mark.parametrize("method", [*PACKAGES, "bitsandbytes"])
def test_the_error_names_a_missing_package(method: str, tmp_path: Path) -> None:
    """transformers names the package; the error is one line with the method's name."""
    package = PACKAGES.get(method, "accelerate")
    module = package.replace("optimum-quanto", "optimum").replace("-", "_")
    if importlib.util.find_spec(module) is not None:
        pytest.skip(f"{package} is installed")
    clean("llama").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method, **SETTINGS.get(method, {})}
    if method == "bitsandbytes":
        config["quantization_config"]["load_in_8bit"] = True
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelLoadError, match=f"quantised with '{method}'.*{package}") as caught:
        load_model(ModelConfig(model=str(tmp_path), device="cpu"))
    assert "\n" not in str(caught.value)


def test_an_unknown_method_is_refused(tmp_path: Path) -> None:
    clean("llama").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "sevens"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelLoadError, match="quantised with 'sevens', which transformers"):
        load_model(ModelConfig(model=str(tmp_path), device="cpu"))
    torch.save(tiny_model("llama").state_dict(), tmp_path / "weights.pt")
    config["quantization_config"] = {"quant_method": "eights"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    state_dict = ModelConfig(
        model=str(tmp_path / "weights.pt"), config=str(tmp_path), tokenizer=str(tmp_path)
    )
    with pytest.raises(ModelLoadError, match="of a quantised model; it needs its directory"):
        load_model(state_dict)


class CodesTensor(torch.Tensor):
    """A tensor subclass of a quantisation library."""


@torch.no_grad()
def test_only_unmodified_modules_are_plain() -> None:
    assert matrix_of(nn.Linear(3, 4)) is not None
    strange: list[Any] = [nn.Linear(3, 4) for _ in range(5)]
    strange[0].weight = nn.Parameter(torch.zeros(4, 3).as_subclass(CodesTensor))
    strange[1].weight = nn.Parameter(torch.zeros(4, 3, dtype=torch.int8), requires_grad=False)
    strange[2].weight = nn.Parameter(strange[2].weight.to(torch.float8_e4m3fn))
    strange[3].forward = lambda x: x
    strange[4].register_forward_pre_hook(lambda _module, x: x)
    assert not any(is_plain(module) or matrix_of(module) for module in strange)
    assert not is_plain(nn.ReLU())
    model = nn.Sequential(strange[1].bfloat16(), nn.LayerNorm(4))
    assert activation_dtype(model) is torch.bfloat16


def test_quantised_models_are_loaded_onto_their_device() -> None:
    cpu, meta = torch.device("cpu"), torch.device("meta")
    assert placement(cpu) == {}
    has_accelerate = importlib.util.find_spec("accelerate") is not None
    assert placement(meta) == ({"device_map": {"": meta}} if has_accelerate else {})

    class Fixed(nn.Linear):
        def to(self, *_args: Any, **_kwargs: Any) -> Any:
            raise ValueError("this model cannot be moved")

    fixed = Fixed(2, 2)
    assert move(fixed, cpu) is fixed
    assert move(nn.Linear(2, 2), meta).weight.device == meta


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="torchao is not installed")
@pytest.mark.parametrize("target", ["none", "cuda"])
def test_a_torchao_checkpoint_is_served(target: str, tmp_path: Path) -> None:
    from torchao.quantization import Int8WeightOnlyConfig  # noqa: PLC0415 - it may be missing

    clean("llama").save_pretrained(tmp_path / "plain")
    quantised = AutoModelForCausalLM.from_pretrained(
        tmp_path / "plain", quantization_config=TorchAoConfig(Int8WeightOnlyConfig())
    )
    quantised.save_pretrained(tmp_path / "quantised")
    loaded = load_model(ModelConfig(model=str(tmp_path / "quantised"), device="cpu"))
    assert type(loaded.module.model.layers[0].mlp.up_proj.weight).__name__ == "Int8Tensor"
    counts: dict[str, int] = {}

    def prepare(model: nn.Module, hook: AttentionHook) -> None:
        if target == "cuda":
            counts.update(fuse_for_cuda(model, attention_of(hook), TorchOps()))

    expected = answers("llama", quantised.eval())
    assert answers("llama", loaded.module, prepare=prepare) == expected
    assert loaded.module.lm_head(torch.zeros(1, 1, 48)).shape == (1, 1, VOCAB_SIZE)
    if target != "none":
        assert counts["rotary"] == NUM_LAYERS
        assert not {"linear", "mlp", "qkv"} & counts.keys()
