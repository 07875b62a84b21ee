"""Sequence: one request while it runs. Private to core; owned by the core thread."""

from __future__ import annotations

import enum

from core.block_table import BlockTable
from core.contract.messages import EngineRequest
from core.contract.params import SamplingParams


class Status(enum.Enum):
    """Where a sequence is. ``FINISHED`` is final."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Sequence:
    """Tokens, counters and blocks of one request.

    ``token_ids`` is the prompt followed by every sampled token. The first
    ``num_computed_tokens`` of them have their keys and values in the cache; the rest are
    pending. A sequence samples its next token in the step that computes its last pending one,
    which makes prefill, chunked prefill, decode and recompute after preemption one case.

    Where steps are launched before the last one's tokens are read back, the token that such a
    step will have sampled is in flight: it counts as one of the sequence's, and is pending, but
    only the device knows which it is. ``num_computed_tokens`` counts what launched steps compute.
    """

    __slots__ = (
        "__weakref__",
        "block_hashes",
        "block_table",
        "epoch",
        "must_end_thinking",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_in_flight",
        "num_preemptions",
        "num_prompt_tokens",
        "params",
        "request",
        "seed",
        "status",
        "token_ids",
    )

    def __init__(self, request: EngineRequest, *, seed: int) -> None:
        """``seed`` is the request's own, or one drawn by the engine: always set."""
        self.request = request
        self.params: SamplingParams = request.params
        self.seed = seed
        self.token_ids: list[int] = list(request.prompt_token_ids)
        self.num_prompt_tokens = len(self.token_ids)
        self.num_computed_tokens = 0
        self.num_cached_tokens = 0  # prompt tokens that other sequences had computed
        self.num_in_flight = 0
        self.epoch = 0  # what was launched in an earlier one is of no use any more
        self.num_preemptions = 0
        self.must_end_thinking = False  # whether its thinking budget is used up
        self.block_table = BlockTable()
        self.block_hashes: list[bytes] = []  # of its full blocks; see core.kv.prefix
        self.status = Status.WAITING

    @property
    def request_id(self) -> str:
        """The id of the request this sequence runs."""
        return self.request.request_id

    @property
    def num_tokens(self) -> int:
        """Prompt and sampled tokens, those in flight too."""
        return len(self.token_ids) + self.num_in_flight

    @property
    def num_output_tokens(self) -> int:
        """Sampled tokens that are known."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_sampled_tokens(self) -> int:
        """Sampled tokens, those in flight too."""
        return len(self.token_ids) + self.num_in_flight - self.num_prompt_tokens

    @property
    def num_pending_tokens(self) -> int:
        """Tokens whose keys and values are not in the cache yet, and will be wanted there.

        None are, if the token in flight is known to be the last.
        """
        num_tokens = len(self.token_ids) + self.num_in_flight
        if self.num_in_flight and num_tokens - self.num_prompt_tokens >= self.params.max_tokens:
            return 0
        return num_tokens - self.num_computed_tokens

    def __repr__(self) -> str:
        return (
            f"Sequence({self.request_id!r}, {self.status.value}, tokens={self.num_tokens}, "
            f"computed={self.num_computed_tokens}, blocks={len(self.block_table)})"
        )
