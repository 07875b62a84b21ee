"""Time the steps in which an engine decodes new sequences of random tokens."""

from __future__ import annotations

import random
import time

from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams
from core.engine.engine import Engine


def step_times(
    engine: Engine,
    num_rows: int,
    *,
    context: int,
    num_tokens: int,
    last_id: int,
    spin_seconds: float = 0.0,
) -> list[float]:
    """Seconds of each step until ``num_rows`` new sequences end, after ``num_tokens`` tokens each.

    Their prompts are ``context`` ids from 300 up to ``last_id``, without special tokens; the best
    tokens are taken. The first steps compute the prompts: use only the last ones. Before each step
    the core computes something else for ``spin_seconds``, almost without memory.
    """
    rng = random.Random(0)
    params = SamplingParams(max_tokens=num_tokens, temperature=0.0, ignore_eos=True)
    for i in range(num_rows):
        prompt = tuple(rng.randint(300, last_id) for _ in range(context))
        engine.add(EngineRequest(request_id=str(i), prompt_token_ids=prompt, params=params))
    seconds = []
    while engine.has_work:
        end = time.perf_counter() + spin_seconds
        while time.perf_counter() < end:
            pass
        start = time.perf_counter()
        engine.step()
        seconds.append(time.perf_counter() - start)
    return seconds
