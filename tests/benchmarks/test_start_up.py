"""The start-up benchmark, with a tiny model."""

import pytest
import torch
from safetensors.torch import load_file

from bench import random_model
from benchmarks.start_up import make_float32_twin
from benchmarks.start_up_child import measure


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(random_model, "model_cache", lambda: tmp_path_factory.mktemp("models"))
        yield random_model.cached_random_model("tiny")


def test_a_twin_has_the_same_weights_in_float32(directory, tmp_path):
    make_float32_twin(directory, tmp_path / "twin")
    weights, twin = (load_file(p / "model.safetensors") for p in (directory, tmp_path / "twin"))
    assert weights.keys() == twin.keys()
    assert {tensor.dtype for tensor in twin.values()} == {torch.float32}
    assert all(torch.equal(tensor.float(), twin[name]) for name, tensor in weights.items())


def test_load_and_requests_are_timed(directory):
    found = measure(directory, prompt_len=20)
    assert found.keys() == {
        "load_s",
        "load_cpu_s",
        "proof_s",
        "first_ttft_ms",
        "later_ttft_ms",
    }
    found.pop("proof_s")  # none if the verdict is remembered
    assert all(value > 0 for value in found.values())
