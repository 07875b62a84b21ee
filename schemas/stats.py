"""GET /stats: counters of the engine."""

from schemas.base import ResponseModel


class EngineStats(ResponseModel, frozen=True, kw_only=True):
    """Gauges (running, waiting, free blocks) and totals since the start.

    A block holds a fixed number of KV cache slots. `num_cached_tokens` is the part of
    `num_prompt_tokens` that came from the prefix cache.
    """

    num_running: int
    num_waiting: int
    num_free_blocks: int
    num_blocks: int
    num_steps: int
    num_preemptions: int
    num_failed_steps: int
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
