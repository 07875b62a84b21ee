"""CompletionClient: streams completions from an OpenAI-compatible server and times their pieces."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from bench.over_http.connection import ConnectionFailed, Exchange, ServerAddress, exchange
from bench.over_http.event_stream import EventStreamParser
from bench.records import RequestTimes

DEFAULT_TIMEOUT = 900.0

_encode = msgspec.json.Encoder().encode


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Any] | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None

    @property
    def has_text(self) -> bool:
        """Whether the choice has generated text of any kind."""
        delta = self.delta
        if delta is None:
            return bool(self.text)
        return bool(delta.content or delta.reasoning_content or delta.reasoning or delta.tool_calls)


class _Event(msgspec.Struct):
    """The fields of a chunk that are used here."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Event).decode


class CompletionClient:
    """Requests completions from one server and records when their pieces arrive. Event loop only.

    ``/completions`` is appended to ``base_url``, for example ``http://127.0.0.1:8000/v1``. The
    fields of ``extra`` (``{"temperature": 0, "ignore_eos": True}``) are added to every body and
    override others. ``timeout`` is the limit of a whole request in seconds. Requests run
    concurrently, each over its own connection.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        chat: bool = False,
        extra: Mapping[str, Any] | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Raises ValueError if ``base_url`` is not an http or https URL."""
        self._endpoint = ServerAddress(base_url, api_key=api_key)
        self._model = model
        self._chat = chat
        self._extra = dict(extra or {})
        self._timeout = timeout

    async def run(
        self,
        prompt: str | list[int],
        max_tokens: int,
        on_token: Callable[[RequestTimes], None] | None = None,
        *,
        due: float | None = None,
    ) -> RequestTimes:
        """Request one completion. Failures are in the record.

        ``on_token`` is called after each piece of text, with the unfinished record. ``due`` is
        when the request should have been submitted; by default, now. Raises TypeError for a chat
        of token ids.
        """
        request = self._request(prompt, max_tokens)
        answer = _Answer(RequestTimes(), on_token)
        record = answer.record
        record.submit = time.perf_counter()
        record.due = record.submit if due is None else due
        try:
            async with asyncio.timeout(self._timeout):
                ended = await exchange(self._endpoint, request, answer.feed)
            record.status = ended.status
            answer.finish(ended)
        except TimeoutError:
            record.error = f"not finished after {self._timeout:g} s"
        except ConnectionFailed as error:
            # After [DONE] the answer is complete, however its connection ended.
            if not answer.is_done:
                record.error = str(error)
        record.end = answer.end or time.perf_counter()
        return record

    def _request(self, prompt: str | list[int], max_tokens: int) -> bytes:
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if not self._chat:
            return self._post("/completions", body | {"prompt": prompt})
        if not isinstance(prompt, str):
            raise TypeError("a chat takes text, not token ids")
        messages = [{"role": "user", "content": prompt.strip()}]
        return self._post("/chat/completions", body | {"messages": messages})

    def _post(self, path: str, body: dict[str, Any]) -> bytes:
        return self._endpoint.request("POST", path, _encode(body | self._extra))


class _Answer:
    """One streamed answer, read into its record."""

    def __init__(
        self, record: RequestTimes, on_token: Callable[[RequestTimes], None] | None
    ) -> None:
        self.record = record
        self.is_done = False
        self.end = 0.0
        self._on_token = on_token
        self._events = EventStreamParser()
        self._usage: _Usage | None = None

    def feed(self, now: float, chunk: bytes) -> None:
        """Read a piece of the body that arrived at ``now``."""
        self.record.status = 200
        self.end = now
        for data in self._events.feed(chunk):
            if data == b"[DONE]":
                self.is_done = True
                self._count()
            else:
                self._take(now, data)

    def finish(self, ended: Exchange) -> None:
        """Count the tokens of an answer that has ended, and record an error if it failed."""
        record = self.record
        if ended.status != 200:
            record.error = f"HTTP {ended.status}: {_message(ended.error_body)}"
            return
        self._count()
        if record.error is None and not self.is_done and record.finish_reason is None:
            record.error = "the answer ended without a finish reason"

    def _take(self, now: float, data: bytes) -> None:
        record = self.record
        try:
            event = _decode(data)
        except msgspec.MsgspecError as error:
            record.error = record.error or f"cannot decode an event: {error}"
            return
        if event.error is not None:
            record.error = record.error or f"error event: {_encode(event.error).decode()[:300]}"
        if event.usage is not None:
            self._usage = event.usage
        if not event.choices:
            return
        choice = event.choices[0]
        if choice.finish_reason is not None:
            record.finish_reason = choice.finish_reason
        if choice.has_text:
            record.token_times.append(now)
            if self._on_token is not None:
                self._on_token(record)

    def _count(self) -> None:
        record, usage = self.record, self._usage
        if usage is None or usage.completion_tokens is None:
            record.completion_tokens = len(record.token_times)
            record.estimated = True
            return
        record.estimated = False
        record.completion_tokens = usage.completion_tokens
        record.prompt_tokens = usage.prompt_tokens or 0
        details = usage.prompt_tokens_details
        record.cached_tokens = None if details is None else details.cached_tokens


async def served_model(base_url: str, *, api_key: str | None = None, timeout: float = 30.0) -> str:  # noqa: ASYNC109 - the limit of one request
    """Return the first model that a server lists. Raises ConnectionFailed if it lists none."""
    endpoint = ServerAddress(base_url, api_key=api_key)
    body = bytearray()
    try:
        async with asyncio.timeout(timeout):
            ended = await exchange(
                endpoint, endpoint.request("GET", "/models"), lambda _now, chunk: body.extend(chunk)
            )
    except TimeoutError:
        raise ConnectionFailed(f"{base_url}/models: no answer after {timeout:g} s") from None
    if ended.status != 200:
        raise ConnectionFailed(
            f"{base_url}/models: HTTP {ended.status}: {_message(ended.error_body)}"
        )
    try:
        return msgspec.json.decode(body, type=_Models).data[0].id
    except (msgspec.MsgspecError, IndexError):
        raise ConnectionFailed(f"{base_url}/models lists no model") from None


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


def _message(body: bytes) -> str:
    """Return the message of an error's body, in one line."""
    text = body.decode(errors="replace")
    try:
        said = msgspec.json.decode(body)
        text = said.get("error", said).get("message", text)
    except (msgspec.MsgspecError, AttributeError):
        pass
    return " ".join(str(text).split())[:300]
