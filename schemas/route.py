"""GET /stats of a router."""

from schemas.base import ResponseModel
from schemas.stats import LoopStats


class UpstreamStats(ResponseModel, frozen=True, kw_only=True):
    """One server of a model. `is_available`: it gets requests before those that are not."""

    address: str
    num_running: int
    is_available: bool


class RoutedModelStats(ResponseModel, frozen=True, kw_only=True):
    """One model. `state` is that of its process; of servers that run already it is `ready`.

    `num_answers` were passed on to their end, `num_cut` broke off in the middle, `num_refused` got
    an error of the router, `num_retries` were sent to another server. A piece is one write of an
    answer.
    """

    state: str
    num_running: int
    num_waiting: int
    num_requests: int = 0
    num_answers: int = 0
    num_cut: int = 0
    num_refused: int = 0
    num_retries: int = 0
    num_failed: int = 0
    num_pieces: int = 0
    num_loads: int = 0
    num_unloads: int = 0
    num_failed_loads: int = 0
    num_crashes: int = 0
    last_load_seconds: float
    failure: str
    servers: list[UpstreamStats]


class RouterStats(ResponseModel, frozen=True, kw_only=True):
    """The router's counters since its start. `num_waiting` requests wait for models."""

    num_open: int
    num_waiting: int
    event_loop: LoopStats
    models: dict[str, RoutedModelStats]
