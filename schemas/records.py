"""GET /requests and /requests/{id}: what happened to a request."""

from typing import Any, Literal, TypeAlias

import msgspec

from schemas.base import ResponseModel

EndedBy: TypeAlias = Literal["model", "length", "stop", "client", "deadline", "server", "error"]


class Times(ResponseModel, frozen=True, kw_only=True):
    """Milliseconds of a request, each in one place.

    `upload`: until the body had arrived and was decoded. `waiting`: for a turn of the event loop
    and for a worker thread. `worker`: chat template, tokenizer, grammar. `queue`: in the engine's
    line, also after a preemption. `prefill`: from the start to the first token. `decode`: from
    there to the last one. `delivery`: from there, or from an error, to the last byte. `other`: the
    rest of the request's time. With several choices, the first one to start and to have a token,
    and the last one to end.
    """

    upload: float = 0.0
    waiting: float = 0.0
    worker: float = 0.0
    queue: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0
    delivery: float = 0.0
    other: float = 0.0


class CacheMiss(ResponseModel, frozen=True, kw_only=True):
    """Why the rest of a prompt did not come from the prefix cache, and its first such block.

    `never_seen`: nothing with this beginning is known. `evicted`: it was cached and has given way.
    `other_salt`: it is cached for requests of another key or `cache_salt`; only the log says so,
    the API says `never_seen`. `last_block`: all that can be reused was; the last token is always
    computed. `window`: layers with a sliding window have released what they need.
    `prompt_logprobs`: the request needs the whole prompt computed. `disabled`: there is no prefix
    cache.
    """

    reason: Literal[
        "never_seen",
        "evicted",
        "other_salt",
        "last_block",
        "window",
        "prompt_logprobs",
        "disabled",
    ]
    first_differing_block: int


class RequestRecord(ResponseModel, frozen=True, kw_only=True):
    """One request, running or ended.

    `id` is the response's, null if there was none. `key` is the name of the API key, else the
    client's address. `status` is the HTTP status, or what a stream that began with 200 ended with.
    `parameters` are effective values, after defaults. `ignored` are the names of the header
    `x-roseinfer-ignored`. Steps and batches (sequences in these steps)
    are of the engine. `traceparent` is the client's span, in W3C's form. `prompt` and `text` are
    kept with --log-prompts only, and are not in the list of requests.
    """

    id: str | None
    request_id: str
    key: str
    route: str
    model: str
    stream: bool
    state: Literal["running", "ended"]
    started_at: float
    status: int | None
    parameters: dict[str, Any]
    ignored: list[str] = msgspec.field(default_factory=list)
    prompt_tokens: int
    cached_tokens: int
    cache_miss: CacheMiss | None
    completion_tokens: int
    finish_reasons: list[Literal["stop", "length"] | None]
    ended_by: EndedBy | None
    error: str | None
    error_code: str | None
    ttft_ms: float | None
    duration_ms: float
    times_ms: Times
    num_steps: int
    mean_batch: float
    max_batch: int
    num_preemptions: int
    traceparent: str | None = None
    prompt: str | None = None
    text: str | None = None


class RequestList(ResponseModel, frozen=True, kw_only=True):
    """The last requests of a key, the newest first."""

    object: Literal["list"] = "list"
    data: list[RequestRecord]
