"""Loading by rows: what stays in memory, and what is refused."""

from __future__ import annotations

import gc
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, GptOssConfig, LlamaConfig, PretrainedConfig

from core.contract.errors import ModelLoadError
from core.kernels.cpu.library import kernels
from core.models.spec import Undescribed
from tests.support.checkpoints import CONTEXT, DECODER, VOCAB_SIZE
from tests.support.damaged import Tensors, change_config, change_tensors
from tests.support.described import (
    BFLOAT16,
    FLOAT32,
    INT8,
    WEIGHTS,
    assembled,
    edited,
    executor_of,
    loaded,
    saved,
)
from tests.support.each import each
from tests.support.mixtures import mixture

pytestmark = pytest.mark.skipif(kernels() is None, reason="no C++ compiler")

WIDE = {"hidden_size": 256, "moe_intermediate_size": 128, "num_experts": 32, "head_dim": 32}
"""Most parameters are experts', and the padding of panels hardly counts."""


@each("weights, most", [(FLOAT32, 4.1), (BFLOAT16, 2.1), (INT8, 1.2)])
def test_bytes_per_parameter_are_logged(
    weights: tuple[str, str],
    most: float,
    tmp_path_factory: pytest.TempPathFactory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = tmp_path_factory.mktemp("wide")
    model = mixture("qwen3_moe", **WIDE)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    model.to(getattr(torch, BFLOAT16[0] if weights is INT8 else weights[0])).save_pretrained(folder)
    caplog.clear()
    with caplog.at_level(logging.INFO, "roseinfer.core"):
        executor_of(folder, weights)
    [line] = [r for r in caplog.records if r.getMessage().startswith("weights: ")]
    megabytes, per_parameter = line.args
    assert 0.85 * most < per_parameter <= most
    assert megabytes == f"{per_parameter * num_parameters / 1e6:,.0f}"


@each("family", ["gemma3", "gpt2", "gpt_oss", "qwen3"])
@each("dtype", [torch.float32, torch.bfloat16])
@each("weights", WEIGHTS)
def test_a_mapped_checkpoint_is_released(
    family: str, dtype: torch.dtype, weights: tuple[str, str]
) -> None:
    folder = str(saved(family, dtype))
    executor = executor_of(Path(folder), weights)
    gc.collect()
    assert folder not in Path("/proc/self/maps").read_text()
    assert executor.layers


def narrow_tokens(model: Any) -> None:
    model.transformer.wte = nn.Embedding(VOCAB_SIZE - 1, 48)


def narrow_positions(model: Any) -> None:
    model.transformer.wpe = nn.Embedding(CONTEXT - 1, 48)


@each("change", [narrow_tokens, narrow_positions])
def test_a_model_that_may_lack_a_row_is_refused(
    change: Callable[[Any], None], tmp_path: Path
) -> None:
    """The kernel would read beyond the embedding."""
    with pytest.raises(Undescribed, match="has shape"):
        loaded(edited("gpt2", change, tmp_path))


@each("fields", [{"max_position_embeddings": 2 * CONTEXT}, {"n_positions": None}])
def test_no_context_is_longer_than_the_positions(fields: dict[str, Any], tmp_path: Path) -> None:
    file = edited("gpt2", lambda _: None, tmp_path) / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    with pytest.raises((ModelLoadError, Undescribed)):
        assembled(loaded(tmp_path), max_model_len=2 * CONTEXT)


LARGE = DECODER | {
    "vocab_size": 8000,
    "intermediate_size": 2816,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "num_hidden_layers": 8,
}
CHECKPOINTS: dict[str, PretrainedConfig] = {
    "llama": LlamaConfig(**LARGE),
    "gpt_oss": GptOssConfig(**LARGE | {"intermediate_size": 384}, num_local_experts=8, head_dim=64),
}
"""Configurations of about 100 million parameters."""

MEASURE = """
import json, logging, sys, threading
from pathlib import Path
from tests.support.described import loaded

def anonymous():
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("RssAnon:")[1].split()[0])

def watch():
    while not done.wait(0.001):
        seen.append(anonymous())

packed = []
log = logging.getLogger("roseinfer.core")
log.setLevel(logging.INFO)
log.addFilter(lambda record: packed.append(record.args) or True)
folder, *weights = sys.argv[1:]
loaded("llama", tuple(weights))  # imports, compiled kernels and threads
done, before = threading.Event(), anonymous()
seen = [before]
watcher = threading.Thread(target=watch)
watcher.start()
model = loaded(Path(folder), tuple(weights))
done.set()
watcher.join()
megabytes = float(packed[-1][0].replace(",", ""))
print(json.dumps([megabytes * 1e6, max(seen) - before, len(seen)]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("family", "weights"), [("llama", INT8), ("gpt_oss", BFLOAT16)])
def test_peak_memory_of_a_load(family: str, weights: tuple[str, str], tmp_path: Path) -> None:
    """The packed weights, and beside them at most 10 % of them or 64 MB."""
    model = AutoModelForCausalLM.from_config(CHECKPOINTS[family], dtype=torch.bfloat16)
    model.save_pretrained(tmp_path)
    del model
    command = [sys.executable, "-c", MEASURE, str(tmp_path), *weights]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    packed, peak, num_samples = json.loads(done.stdout.splitlines()[-1])
    assert num_samples > 20
    assert 100e6 < packed < 250e6
    assert 0.9 * packed < peak <= packed + max(0.1 * packed, 64e6)


@each("value", [torch.nan, torch.inf])
def test_a_model_whose_logits_are_not_finite_is_refused(value: float, tmp_path: Path) -> None:
    def spoil(model: Any) -> None:
        model.get_input_embeddings().weight[:, 5] = value

    model = loaded(edited("llama", spoil, tmp_path))
    with pytest.raises(ModelLoadError, match=r"^llama cannot be served: .* NaN or infinite logits"):
        assembled(model)


def swap_rows(tensors: Tensors) -> Tensors:
    """A row of the first layer's keys becomes one of its values."""
    keys, values = (f"model.layers.0.self_attn.{part}_proj.weight" for part in "kv")
    both = torch.cat([tensors[keys], tensors[values]])
    return tensors | {keys: both[: len(tensors[keys]) - 1], values: both[len(tensors[keys]) - 1 :]}


def widen(tensors: Tensors) -> Tensors:
    name = "model.layers.0.self_attn.q_proj.weight"
    return tensors | {name: tensors[name][None]}


def count(tensors: Tensors) -> Tensors:
    name = "model.layers.0.mlp.down_proj.weight"
    return tensors | {name: tensors[name].int()}


@each("change", [swap_rows, widen, count])
def test_other_tensors_of_as_many_values_are_refused(
    change: Callable[[Tensors], Tensors], tmp_path: Path
) -> None:
    folder = edited("llama", lambda _: None, tmp_path)
    change_tensors(folder, change)
    with pytest.raises(Undescribed, match=r"have .* rows, not|has shape|has values of type"):
        loaded(folder)


def test_more_parameters_than_the_files_can_have_are_refused(tmp_path: Path) -> None:
    change_config(edited("llama", lambda _: None, tmp_path), intermediate_size=1 << 24)
    with pytest.raises(ModelLoadError, match=r"bytes of weights and a config\.json of"):
        loaded(tmp_path)
