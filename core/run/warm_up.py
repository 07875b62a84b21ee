"""Run prompt and decode steps at load, so that the first request is as fast as later ones."""

from __future__ import annotations

from core.contract.params import SamplingParams
from core.observe import load_progress
from core.observe.step_timer import StepTimer
from core.run.dummy_step import dummy_sequence, dummy_step
from core.run.limits import Limits
from core.run.runner import ModelRunner

NUM_PROMPT_TOKENS = 8
"""Tokens of the prompt: enough for the kernels of many rows. More would delay the start."""

_GREEDY = SamplingParams(max_tokens=2, temperature=0.0)
_SAMPLED = SamplingParams(max_tokens=2, temperature=1.0, top_p=0.9)


def warm_up(runner: ModelRunner, limits: Limits) -> bool:
    """Compute a prompt with a greedy token and a decode step with a sampled one.

    Returns whether the logits of both are finite.

    This starts threads, allocates workspaces and compiles kernels. It uses the first blocks of the
    KV cache, which must be free, and clears them. The runner gets a new timer.
    """
    load_progress.begin("warming up")
    length = min(NUM_PROMPT_TOKENS, limits.max_model_len - 1)
    if length < 1:
        return True
    is_finite = True
    block_ids = range(-(-(length + 1) // limits.block_size))
    for num_tokens, count, params in ((length, length, _GREEDY), (length + 1, 1, _SAMPLED)):
        sequence = dummy_sequence(
            num_tokens,
            params,
            iter(block_ids),
            limits.block_size,
            num_groups=len(runner.first_blocks),
        )
        [result] = runner.launch(dummy_step([sequence], [count])).collect()
        is_finite &= result.sampled is not None and result.sampled.failure is None
    runner.clear([*block_ids, *runner.first_blocks[1:]])
    runner.timer = StepTimer()
    return is_finite
