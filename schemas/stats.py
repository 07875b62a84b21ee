"""GET /stats: counters of the engine and of the event loop."""

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


class LoopStats(ResponseModel, frozen=True, kw_only=True):
    """Stalls of the event loop since the start, while at least one request was open.

    A stall is a time of more than 50 ms in which the event loop served no connection. It is busy
    if the event loop's own thread computed for more than 50 ms of it.
    """

    num_stalls: int
    longest_stall_ms: int
    num_busy_stalls: int
    longest_busy_stall_ms: int


class ServerStats(EngineStats, frozen=True, kw_only=True):
    """The engine's counters and those of the event loop."""

    event_loop: LoopStats
