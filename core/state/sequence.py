"""Sequence: the state of one request in the engine.

Scheduler, KV cache manager, runner and text all read and change it. What is not computed yet is a
number of pending tokens: there is no phase of prefill or decode.
"""

from __future__ import annotations

import enum
import time

from core.contract.messages import EngineRequest, Work
from core.contract.params import SamplingParams
from core.state.block_table import BlockTable
from core.state.history import History


class Status(enum.Enum):
    """``FINISHED`` is final."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Sequence:
    """Tokens, counters and blocks of one request. Core thread only.

    ``token_ids`` is the prompt followed by every sampled token. The keys and values of the first
    ``num_computed_tokens`` are in the KV cache; the others are pending. A sequence samples its
    next token in the step that computes its last pending one, so prefill, chunked prefill, decode
    and recompute after preemption are one case.

    With async scheduling a token is in flight between the launch of the step that samples it and
    the collection of that step: it counts as a token of the sequence and is pending, but only the
    device knows its id. ``num_computed_tokens`` includes the tokens of launched steps.
    """

    __slots__ = (
        "__weakref__",
        "arrival",
        "awaits_mask",
        "block_hashes",
        "block_tables",
        "epoch",
        "failure",
        "history",
        "last_token_at",
        "must_end_thinking",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_in_flight",
        "num_passed_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "params",
        "request",
        "seed",
        "status",
        "token_ids",
    )

    def __init__(self, request: EngineRequest, *, seed: int, num_groups: int = 1) -> None:
        """``seed`` is the request's own, or one that the engine drew.

        ``num_groups`` is that of the KVCacheManager.
        """
        self.request = request
        self.params: SamplingParams = request.params
        self.seed = seed
        self.token_ids: list[int] = list(request.prompt_token_ids)
        self.num_prompt_tokens = len(self.token_ids)
        self.num_computed_tokens = 0
        self.num_cached_tokens = 0  # prompt tokens found in the prefix cache
        self.num_in_flight = 0
        self.epoch = 0  # a step launched in an earlier epoch is stale
        self.num_preemptions = 0
        self.awaits_mask = False  # whether the last step had to leave it out: its mask was late
        self.failure: str | None = None  # why a logits processor allows no token, for the client
        self.last_token_at: int | None = None  # nanoseconds; see core.engine.generation
        self.arrival = 0  # place in the order of arrival
        self.num_passed_tokens = 0  # expected tokens of later ones that were admitted before it
        self.must_end_thinking = False  # whether its thinking budget is used up
        self.block_tables = [BlockTable() for _ in range(num_groups)]  # of the layer groups
        self.block_hashes: list[bytes] = []  # of the full blocks; see core.kv.block_pool
        self.history = History()
        self.status = Status.WAITING

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def num_tokens(self) -> int:
        """Prompt and sampled tokens, including one in flight."""
        return len(self.token_ids) + self.num_in_flight

    @property
    def num_output_tokens(self) -> int:
        """Sampled tokens, excluding one in flight."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_sampled_tokens(self) -> int:
        """Sampled tokens, including one in flight."""
        return len(self.token_ids) + self.num_in_flight - self.num_prompt_tokens

    @property
    def num_pending_tokens(self) -> int:
        """Tokens that a step must still compute.

        None, if the token in flight reaches ``max_tokens``: no step needs its keys and values.
        """
        num_tokens = len(self.token_ids) + self.num_in_flight
        if self.num_in_flight and num_tokens - self.num_prompt_tokens >= self.params.max_tokens:
            return 0
        return num_tokens - self.num_computed_tokens

    @property
    def block_table(self) -> BlockTable:
        """The full group's, which has every token."""
        return self.block_tables[0]

    def reset_tables(self) -> None:
        """Get new tables; the old ones stay as they are."""
        self.block_tables = [BlockTable() for _ in self.block_tables]

    def restart(self) -> None:
        """Take it back to before its first step, with all its tokens. It gives no blocks back."""
        self.reset_tables()
        self.block_hashes = []
        self.epoch += 1
        self.num_in_flight = 0
        self.num_computed_tokens = 0
        self.num_preemptions += self.status is Status.RUNNING
        self.status = Status.WAITING
        self.history.wait()

    def work(self) -> Work:
        """Return the work done for it so far. Any thread; counts may be of different steps then."""
        history, now = self.history, time.perf_counter()
        waiting_since, waited = history.waiting_since, history.waited
        if waiting_since is not None and history.started_at is not None:
            waited += now - waiting_since
        has_first = history.first_token_at is not None
        num_steps, num_rows, max_rows = history.company()
        return Work(
            started_at=history.started_at,
            first_token_at=history.first_token_at,
            until=now,
            waited=waited,
            waited_before_first=history.waited_before_first if has_first else waited,
            num_steps=num_steps,
            num_rows=num_rows,
            max_rows=max_rows,
            num_preemptions=self.num_preemptions,
            num_prompt_tokens=self.num_prompt_tokens,
            num_cached_tokens=self.num_cached_tokens,
            num_output_tokens=self.num_output_tokens,
            miss=history.miss,
        )

    def __repr__(self) -> str:
        return (
            f"Sequence({self.request_id!r}, {self.status.value}, tokens={self.num_tokens}, "
            f"computed={self.num_computed_tokens}, blocks={len(self.block_table)})"
        )
