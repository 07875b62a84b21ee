from __future__ import annotations

import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import LlamaConfig

from core.assembly.build import assemble
from core.contract.config import EngineConfig
from core.executors import buffers
from core.executors import memory as executor_memory
from core.kernels.cpu.library import kernels
from core.run.limits import Limits
from core.sizing.step_size import step_nbytes
from core.system import huge_pages
from core.text.tokenizer import Tokenizer
from tests.support.checkpoints import DECODER, random_model
from tests.support.described import loaded
from tests.support.tiny_engine import request
from tests.support.tokenizers import byte_level

WIDE = LlamaConfig(**{**DECODER, "vocab_size": 60_000})


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of all tensors that operations make, as long as they live."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._live: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = {_address(x) for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and _address(tensor) not in known:
                self._add(tensor.untyped_storage())
        return result

    def hold(self, nbytes: int) -> None:
        """Count bytes that nobody returns."""
        self.now += nbytes
        self.peak = max(self.peak, self.now)

    def _add(self, storage: torch.UntypedStorage) -> None:
        self.hold(storage.nbytes())
        weakref.finalize(storage, self._free, storage.nbytes())

    def _free(self, nbytes: int) -> None:
        self.now -= nbytes


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@pytest.mark.skipif(kernels() is None, reason="no C++ compiler")
def test_a_step_that_scores_and_samples_stays_within_its_formula(monkeypatch, tmp_path):
    random_model(WIDE).save_pretrained(tmp_path)
    model, memory = loaded(tmp_path), PeakMemory()

    def counted(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(num_bytes: int, *arguments: Any, **options: Any) -> Any:
            memory.hold(num_bytes)
            return make(num_bytes, *arguments, **options)

        return made

    tokenizer = Tokenizer(byte_level(), vocab_size=60_000)
    config = EngineConfig(max_num_seqs=8, max_num_batched_tokens=64, kv_cache_memory=8 << 20)
    engine = assemble(model, tokenizer, config).engine
    engine.add(request("scored", [*range(3, 60)], 1, prompt_logprobs=5))
    for i in range(7):
        engine.add(request(f"drawn {i}", [i], 3, temperature=1.0, top_p=0.9, logprobs=3))
    monkeypatch.setattr(buffers, "zeros", counted(huge_pages.zeros))
    numpy = SimpleNamespace(empty=counted(np.empty), uint8=np.uint8)
    monkeypatch.setattr(executor_memory, "np", numpy)
    with memory:
        engine.step()
    bound = step_nbytes(model, Limits.of(model, config))
    logits = 64 * 60_000 * 4  # compiled kernels make no further copy, torch's operations do
    assert logits < memory.peak <= bound
