"""Resident memory of a served GGUF file: its own size, and the KV cache."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from core.contract.config import ModelConfig
from core.kernels.cpu.library import kernels
from core.model.gguf_export import export_gguf
from tests.support.source_tree import ROOT
from tests.support.tokenizers import byte_level

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(kernels() is None, reason="no C++ compiler"),
]

KV_CACHE = 8 << 20

SERVE = f"""
import ctypes, gc, json, sys
from pathlib import Path
import torch, transformers
from core.build import load_engine
from core.contract.config import EngineConfig, ModelConfig
from tests.support.tiny_engine import run_prompts

def resident():
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("VmRSS")]
    return int(line.split()[1]) << 10

limits = EngineConfig(max_model_len=256, max_num_seqs=8, kv_cache_memory={KV_CACHE}, threads=1)
load_engine(ModelConfig(model=sys.argv[1], device="cpu"), limits)  # what libraries keep
before = resident()
engine = load_engine(ModelConfig(model=sys.argv[2], device="cpu"), limits).engine
run_prompts(engine, [list(range(3, 90))], 4)
print(json.dumps(resident() - before))
"""


def written(folder, mix, **sizes):
    shape = {"num_hidden_layers": 2, "intermediate_size": 256, "vocab_size": 300} | sizes
    config = Qwen3Config(
        **shape,
        hidden_size=256,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        eos_token_id=None,
    )
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    byte_level(280).save_pretrained(folder)
    export_gguf(ModelConfig(model=str(folder), device="cpu"), folder / "m.gguf", mix)
    return folder / "m.gguf"


@pytest.mark.parametrize("mix", ["q4_k_m", "f16"])
def test_a_served_file_takes_its_size_and_the_cache(tmp_path, mix):
    small = written(tmp_path / "small", mix)
    large = written(
        tmp_path / "large", mix, num_hidden_layers=12, intermediate_size=4096, vocab_size=100_000
    )
    command = [sys.executable, "-c", SERVE, str(small), str(large)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    assert json.loads(done.stdout) <= 1.3 * large.stat().st_size + KV_CACHE
