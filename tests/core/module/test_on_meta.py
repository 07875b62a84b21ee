"""Models that are built without torch's arithmetic on "meta" are what they are with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM

from core.module.checkpoint import QuickOnMeta
from tests.support.checkpoints import tiny_model

PROGRAM = """
import sys
from core.contract.config import EngineConfig, ModelConfig
from core.assembly.load import load
load(ModelConfig(device="cpu"), EngineConfig())
print("sympy" in sys.modules)
"""


def test_a_load_imports_no_symbolic_algebra() -> None:
    """A load that has to prove its model first does: the second one remembers the verdict."""
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    for _ in range(2):
        done = subprocess.run(  # noqa: S603 - this interpreter
            command, capture_output=True, text=True, check=False
        )
    assert done.stdout.split() == ["False"], done.stderr


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3", "gemma3"])
def test_all_tensors_of_a_checkpoint_are_the_same(family: str, tmp_path: Path) -> None:
    tiny_model(family).save_pretrained(tmp_path)
    usual: Any = AutoModelForCausalLM.from_pretrained(tmp_path)
    with QuickOnMeta():
        quick: Any = AutoModelForCausalLM.from_pretrained(tmp_path)
    expected = dict([*usual.named_parameters(), *usual.named_buffers()])
    found = dict([*quick.named_parameters(), *quick.named_buffers()])
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert tensor.device.type == "cpu", name
        assert torch.equal(tensor, expected[name]), name


def test_results_on_meta_have_the_usual_shape_and_type() -> None:
    def made() -> list[torch.Tensor]:
        with torch.device("meta"):
            layer = nn.Linear(3, 5, dtype=torch.bfloat16)
            steps = torch.arange(0, 8, 2).to(torch.float64)
            whole = torch.arange(4)
            return [
                *(layer.weight, layer.bias, torch.arange(3), 2.0**steps, steps / 8, 1.0 / steps),
                *(steps * 2, whole / 2, whole * 2, steps + steps, steps.reciprocal()),
                *(steps**2, 2 * steps, torch.mul(steps, 2), torch.div(steps, 2)),
                *(torch.empty_like(steps), torch.empty_like(steps, dtype=torch.int8)),
                *(torch.empty_like(steps, dtype=None), torch.empty_like(steps, device=None)),
            ]

    expected = made()
    with QuickOnMeta():
        found = made()
        real = nn.Linear(3, 5)
        copy = torch.empty_like(found[3], device="cpu")
    assert [(t.shape, t.dtype, t.device) for t in found] == [
        (t.shape, t.dtype, t.device) for t in expected
    ]
    assert isinstance(found[0], nn.Parameter)
    assert real.weight.abs().sum() > 0, "what has memory is initialised"
    assert (copy.device.type, copy.shape) == ("cpu", found[3].shape)


class _Computed(TorchDispatchMode):
    """Names of what torch computes."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_arithmetic_with_numbers_is_left_out() -> None:
    steps = torch.ones(4, dtype=torch.float64, device="meta")
    with QuickOnMeta(), _Computed() as computed:
        results = [
            *(2.0**steps, steps**2, 2 * steps, steps * 2, steps / 8, 1.0 / steps),
            *(torch.mul(steps, 2), torch.div(steps, 2), steps.reciprocal(), steps.pow(2)),
        ]
    assert computed.names == {"empty"}
    assert {(t.shape, t.dtype, t.device) for t in results} == {
        (steps.shape, steps.dtype, steps.device)
    }
