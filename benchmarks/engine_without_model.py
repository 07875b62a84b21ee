"""An engine whose forward pass returns at once; everything else of a step is real."""

from __future__ import annotations

import torch

from core.batch.logits import Logits
from core.batch.model_input import ModelInput
from core.engine.engine import Engine
from core.kv.layer_spec import LayerSpec
from core.kv.manager import KVCacheManager
from core.kv.storage import KVStorage
from core.run.last_tokens import LastTokens
from core.run.runner import ModelRunner
from core.sampling.sampler import Sampler
from core.scheduler import Scheduler
from core.text.tokenizer import Tokenizer

CPU = torch.device("cpu")
BLOCK_SIZE = 16


class ConstantForward:
    """A forward pass that returns the same logits and argmax tokens every time."""

    def __init__(self, vocab_size: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self._tokens = torch.randint(300, vocab_size, (4096,), generator=generator)
        self._logits = torch.zeros(4096, vocab_size)

    @property
    def eager(self) -> ConstantForward:
        return self

    def __call__(self, batch: ModelInput) -> Logits:
        num_logits = len(batch.logits_indices)
        return Logits(self._logits[:num_logits], self._tokens[:num_logits])


def engine_without_model(
    tokenizer: Tokenizer, *, vocab_size: int, num_rows: int, num_tokens: int
) -> Engine:
    """An engine with async scheduling and room for ``num_rows`` sequences of ``num_tokens``."""
    num_blocks = num_rows * (-(-num_tokens // BLOCK_SIZE) + 1)
    storage = KVStorage(
        [LayerSpec(1, 1, 1, 1, 1.0, None)],
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        dtype=torch.float32,
        device=CPU,
    )
    kv = KVCacheManager(num_blocks, BLOCK_SIZE, enable_prefix_caching=True)
    forward: object = ConstantForward(vocab_size)
    return Engine(
        ModelRunner(forward, Sampler(), [storage], LastTokens(num_rows, CPU)),  # type: ignore[arg-type]
        Scheduler(kv, max_num_seqs=num_rows, max_num_batched_tokens=8192),
        kv,
        tokenizer,
        eos_token_ids=frozenset(),
        num_token_ids=vocab_size,
        async_scheduling=True,
    )
