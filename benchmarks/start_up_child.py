"""Load one model and time its first requests, in this process. See benchmarks.start_up.

python -m benchmarks.start_up_child DIRECTORY PROMPT_LEN
"""

from __future__ import annotations

import json
import logging
import random
import statistics
import sys
import time
from pathlib import Path

from core.assembly.build import load_engine
from core.contract.config import EngineConfig, ModelConfig
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.engine.engine import Engine

NUM_REQUESTS = 10


class ProofSeconds(logging.Handler):
    """Adds up the seconds of the proofs at load, which log them."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.total = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Read a line of the log."""
        if " proved in " in record.getMessage() and isinstance(record.args, tuple):
            self.total += float(str(record.args[0]))


def measure(directory: Path, prompt_len: int) -> dict[str, float]:
    """Load a model in this process, and serve requests one after the other."""
    from transformers import AutoModelForCausalLM  # noqa: F401, PLC0415 - import it untimed

    proofs = ProofSeconds()
    logger = logging.getLogger("roseinfer.core")
    logger.addHandler(proofs)
    logger.setLevel(logging.DEBUG)
    model = ModelConfig(model=str(directory), device="cpu")
    wall, cpu = time.perf_counter(), time.process_time()
    loaded = load_engine(model, EngineConfig(max_model_len=1024))
    found = {"load_s": time.perf_counter() - wall, "load_cpu_s": time.process_time() - cpu}
    found["proof_s"] = proofs.total
    rng = random.Random(0)
    first, *later = (
        _time_to_first_token(
            loaded.engine, [rng.randrange(loaded.info.vocab_size) for _ in range(prompt_len)]
        )
        for _ in range(NUM_REQUESTS)
    )
    return found | {"first_ttft_ms": first, "later_ttft_ms": statistics.median(later)}


def _time_to_first_token(engine: Engine, prompt: list[int]) -> float:
    params = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True)
    start = time.perf_counter()
    engine.add(EngineRequest(request_id="r", prompt_token_ids=tuple(prompt), params=params))
    first = None
    while engine.has_work:
        if any(output.token_ids for output in engine.step()) and first is None:
            first = time.perf_counter()
    assert first is not None
    return 1e3 * (first - start)


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), int(sys.argv[2]))))
