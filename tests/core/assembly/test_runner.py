from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from core.assembly.build import load_engine
from core.contract.config import EngineConfig, ModelConfig


@pytest.fixture
def _own_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_own_threads")
def test_an_engine_computes_with_the_threads_that_were_asked_for():
    wanted = torch.get_num_threads() + 1
    load_engine(ModelConfig(device="cpu"), EngineConfig(threads=wanted, max_model_len=64))
    assert torch.get_num_threads() == wanted
