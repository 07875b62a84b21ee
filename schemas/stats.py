"""GET /stats: counters of the engine, of the event loop and of admission."""

from schemas.base import ResponseModel


class EngineStats(ResponseModel, frozen=True, kw_only=True):
    """Gauges (running, waiting, free blocks) and totals since the start.

    A block holds a fixed number of KV cache slots. `num_prompt_tokens` counts prompts when they
    have been computed; `num_cached_tokens` is the part of it that came from the prefix cache.
    `num_aborts` sequences were dropped before their end.
    """

    num_running: int
    num_waiting: int
    num_free_blocks: int
    num_blocks: int
    num_steps: int
    num_preemptions: int
    num_aborts: int
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


class AdmissionStats(ResponseModel, frozen=True, kw_only=True):
    """What the open requests hold. All are 0 when the server is idle.

    A ticket is a request between its headers and the last byte of its answer. Jobs are calls in
    worker threads; those of clients that have left are abandoned. `num_body_bytes` are of bodies
    that were not decoded yet, `num_held_bytes` of decoded ones and of whole answers.
    """

    num_tickets: int
    num_choices: int
    num_body_bytes: int
    num_held_bytes: int
    num_prompt_tokens: int
    num_output_tokens: int
    num_compilations: int
    num_waiting_jobs: int
    num_running_jobs: int
    num_abandoned_jobs: int


class PathStats(ResponseModel, frozen=True, kw_only=True):
    """What computes the model's steps: the whole model in one call, or less at a time.

    `expected` is the path that the model's family has on such a device. `slower_because` is empty
    if that is `name`.
    """

    name: str
    expected: str
    slower_because: str


class ServerStats(EngineStats, frozen=True, kw_only=True):
    """The engine's counters, those of the event loop and those of admission.

    `num_refused` requests were refused because others held too much. `model_path` is null while
    the model is loaded.
    """

    num_refused: int
    event_loop: LoopStats
    admission: AdmissionStats
    model_path: PathStats | None
