"""What a step costs the host: everything but the model.

    python -m benchmarks.host_step [--rows 1,8,32,128] [--steps 200]

An engine that runs ahead, as on a GPU, over a forward pass that answers at once: scheduling,
inputs, the sampler's plan, text and outputs are real. Where steps run ahead, a GPU waits for the
host as soon as this takes longer than its own step. Milliseconds a step, the fastest tenth of them,
in one thread: greedy rows with an output a token. What recordings add (the attention's plan, one
copy, one launch) is not in it.
"""

from __future__ import annotations

import argparse
import random
import time

import torch

from core.builtin_model import path as builtin_path
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.engine import Engine
from core.kv.manager import KVCacheManager
from core.kv.storage import KVStorage
from core.layer_spec import LayerSpec
from core.model.forward import Logits
from core.model.last_tokens import LastTokens
from core.model.runner import ModelRunner
from core.model_input import ModelInput
from core.sampling.sampler import Sampler
from core.scheduler import Scheduler
from core.text.tokenizer import Tokenizer

CPU = torch.device("cpu")
BLOCK_SIZE = 16
PROMPT_TOKENS = 256
WARM_UP = 10


class NoModel:
    """A forward pass whose answer is known."""

    def __init__(self, vocab_size: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self._tokens = torch.randint(300, vocab_size, (4096,), generator=generator)
        self._logits = torch.zeros(4096, vocab_size)

    @property
    def eager(self) -> NoModel:
        """Itself."""
        return self

    def __call__(self, batch: ModelInput) -> Logits:
        """Any logits, and tokens as their best."""
        num_logits = len(batch.logits_indices)
        return Logits(self._logits[:num_logits], self._tokens[:num_logits])


def engine_of(num_rows: int, num_steps: int, tokenizer: Tokenizer, vocab_size: int) -> Engine:
    """An engine with room for all rows and steps."""
    num_blocks = num_rows * (-(-(PROMPT_TOKENS + num_steps) // BLOCK_SIZE) + 1)
    storage = KVStorage(
        [LayerSpec(1, 1, 1, 1, 1.0, None)],
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        dtype=torch.float32,
        device=CPU,
    )
    kv = KVCacheManager(num_blocks, BLOCK_SIZE, enable_prefix_caching=True)
    forward: object = NoModel(vocab_size)
    return Engine(
        ModelRunner(forward, Sampler(), storage, LastTokens(num_rows, CPU)),  # type: ignore[arg-type]
        Scheduler(kv, max_num_seqs=num_rows, max_num_batched_tokens=8192),
        kv,
        tokenizer,
        eos_token_ids=frozenset(),
        async_scheduling=True,
    )


def measure(num_rows: int, num_steps: int, tokenizer: Tokenizer, vocab_size: int) -> float:
    """Milliseconds of a decode step."""
    engine = engine_of(num_rows, num_steps + WARM_UP, tokenizer, vocab_size)
    rng = random.Random(0)
    params = SamplingParams(max_tokens=num_steps + WARM_UP, temperature=0.0, ignore_eos=True)
    for i in range(num_rows):
        ids = tuple(rng.randrange(300, vocab_size) for _ in range(PROMPT_TOKENS))
        engine.add(EngineRequest(request_id=str(i), prompt_token_ids=ids, params=params))
    taken = []
    while engine.has_work:
        start = time.perf_counter()
        engine.step()
        taken.append(time.perf_counter() - start)
    decodes = sorted(taken[-num_steps:])
    return 1e3 * decodes[len(decodes) // 10]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", default="1,8,32,128", help="sequences in a step, by commas")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = Tokenizer.load(str(builtin_path()))
    vocab_size = len(tokenizer.vocabulary)
    for num_rows in map(int, options.rows.split(",")):
        found = measure(num_rows, options.steps, tokenizer, vocab_size)
        print(f"{num_rows:4} rows: {found:.3f} ms a step")


if __name__ == "__main__":
    main()
