"""A checkpoint in mxfp4 is dequantised at load, and served like one that never was quantised."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GptOssConfig

from core.assembly.build import assemble
from core.contract.config import EngineConfig, ModelConfig
from core.module.loader import load_model
from core.text.tokenizer import Tokenizer
from tests.support.checkpoints import VOCAB_SIZE
from tests.support.tiny_engine import assert_generated, prompts, run_prompts
from tests.support.tokenizers import byte_level

pytest.importorskip("accelerate", reason="transformers needs it to read mxfp4")

FP4 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
VALUES = torch.tensor([*FP4, *(-value for value in FP4)])
"""The numbers of 4 bits: sign, two bits of exponent, one of mantissa (OCP MX, version 1.0)."""

EXPERTS = ("experts.gate_up_proj", "experts.down_proj")


def dequantised(blocks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """``[experts, inputs, outputs]`` of uint8 ``[experts, outputs, runs, 16]`` and scales."""
    pairs = torch.stack([VALUES[(blocks & 15).long()], VALUES[(blocks >> 4).long()]], -1)
    runs = pairs.flatten(-2) * torch.exp2(scales.float() - 127)[..., None]
    return runs.flatten(-2).transpose(1, 2)


@pytest.fixture
def checkpoint(tmp_path):
    """The directory of a checkpoint in mxfp4, and the model that it stands for."""
    kinds = ["sliding_attention", "full_attention"]
    config = GptOssConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=16,
        layer_types=kinds,
        max_position_embeddings=256,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.15)
    model.save_pretrained(tmp_path)
    tensors = {}
    state = model.state_dict()
    for name, tensor in load_file(tmp_path / "model.safetensors").items():
        if not name.endswith(EXPERTS):
            tensors[name] = tensor
            continue
        num_experts, num_inputs, num_outputs = tensor.shape
        shape = (num_experts, num_outputs, num_inputs // 32)
        blocks = torch.randint(256, (*shape, 16), dtype=torch.uint8)
        scales = torch.randint(121, 126, shape, dtype=torch.uint8)
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        state[name].copy_(dequantised(blocks, scales))
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((tmp_path / "config.json").read_text())
    settings["quantization_config"] = {"quant_method": "mxfp4"}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    return tmp_path, model.eval().requires_grad_(requires_grad=False)


def test_mxfp4_is_served_as_its_dequantised_weights(checkpoint):
    directory, oracle = checkpoint
    loaded = load_model(ModelConfig(model=str(directory), device="cpu", dtype="float32"))
    for name, tensor in oracle.state_dict().items():
        assert torch.equal(loaded.module.state_dict()[name].float(), tensor), name
    config = EngineConfig(max_model_len=256, max_num_seqs=4, kv_cache_memory=1 << 22)
    engine = assemble(loaded, Tokenizer(byte_level(), vocab_size=VOCAB_SIZE), config).engine
    given = prompts(1)[:5]
    answers = run_prompts(engine, given, 12)
    assert_generated(oracle, given, answers)
