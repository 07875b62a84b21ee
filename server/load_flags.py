"""Flags of load: how much may wait, for how long, and how much a client gets."""

from __future__ import annotations

from argparse import ArgumentTypeError

from server.flag_types import Rates, not_negative, positive, seconds, size
from server.flags import Flag


def _rates(text: str) -> Rates:
    """Convert ``REQUESTS`` or ``REQUESTS,TOKENS``; 0 is no limit."""
    parts = text.split(",")
    if len(parts) > 2:
        raise ArgumentTypeError(f"{text} is not REQUESTS or REQUESTS,TOKENS")
    return Rates(*map(not_negative, parts))


LOAD_FLAGS: tuple[Flag, ...] = (
    Flag(
        name="max-queued-requests",
        help="requests that may wait; one more is answered 429",
        convert=not_negative,
    ),
    Flag(
        name="max-queued-prompt-tokens",
        help="prompt tokens of all running and waiting requests; more are answered 429",
        convert=positive,
    ),
    Flag(
        name="max-queued-output-tokens",
        help="tokens that all running and waiting requests may generate; more are answered 429",
        convert=positive,
    ),
    Flag(name="max-body-size", help="bytes of a request body; a larger one gets 413", convert=size),
    Flag(
        name="max-answer-logprobs",
        help="log-probabilities in one answer: tokens times alternatives + 1; more are a 400",
        convert=positive,
    ),
    Flag(
        name="max-stored-responses",
        help="responses of /v1/responses that are kept in memory; 0: none",
        convert=not_negative,
    ),
    Flag(
        name="max-stored-response-bytes",
        help="bytes of the responses that are kept, with their conversations",
        convert=size,
    ),
    Flag(
        name="request-timeout",
        help="seconds that a request may take, waiting included; then it is answered 504, or its "
        "stream ends with an error; X-Request-Timeout of a request may be shorter; 0: no limit",
        convert=seconds,
    ),
    Flag(
        name="rate-limit",
        help="requests, and tokens of prompts and answers, that each key or address gets in a "
        "minute; more are answered 429; 0: no limit",
        convert=_rates,
        metavar="REQUESTS[,TOKENS]",
        default_text="none",
    ),
)
