"""ForwardedAnswer: an upstream's answer, passed on as it arrives."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

from litestar import Response
from litestar.types import ASGIApp, Receive, Scope, Send

from server.client.answer import Headers, NotSent, ServerAnswer, ServerFailed, Silent
from server.http import ends
from server.http.errors import APIError, send_error
from server.net.body_writer import body_writer
from server.rendering import sse
from server.router.call import response_headers
from server.router.order import Order
from server.router.routing import Routing
from server.router.upstream import Upstream, choose

logger = logging.getLogger("roseinfer.route")

SERVICE_UNAVAILABLE = 503
REFUSALS = frozenset({429, SERVICE_UNAVAILABLE})
"""Statuses with which a server says that it has not begun with a request."""

MAX_ERROR_BODY = 64 * 1024  # bytes of an error that are passed on in an event

MAX_PROCESSES = 3
"""Processes of a model, one after the other, that are waited for on behalf of one request."""


class ForwardedAnswer(Response[None]):
    """Waits for the model, sends the call, and passes the answer on. It owns both meanwhile."""

    def __init__(self, routing: Routing, order: Order) -> None:
        super().__init__(None)
        self._fleet = routing.fleet
        self._config = routing.config
        self._order = order
        self._loop = asyncio.get_running_loop()
        self._has_begun = False
        self._scope: Scope | None = None
        self._send: Send = cast("Send", None)

    def to_asgi_response(self, **_kwargs: Any) -> ASGIApp:  # type: ignore[override]
        return self._run

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        self._scope, self._send = scope, send
        order, counts = self._order, self._order.model.counts
        counts["requests"] += 1
        try:
            await self._answer()
        except APIError as error:
            counts["refused"] += 1
            if not self._has_begun:
                await send_error(scope, send, error)
                return
            await self._write(ends.failure_event(order.path, error, order.request_id))
            await self._write(b"", more_body=False)

    async def _answer(self) -> None:
        """Wait and forward; again if the model's process has ended before it got the call."""
        model = self._order.model
        deadline = self._loop.time() + self._config.wait_timeout
        for number in range(1, MAX_PROCESSES + 1):
            with self._fleet.joined(model, self._order.tenant) as joined:
                await self._wait(joined, deadline)
                if await self._forward():
                    return
                if number == MAX_PROCESSES or not await self._fleet.is_gone(model):
                    break
        message = f"The server of the model '{model.name}' cannot be reached."
        raise self._fleet.unavailable(model, message)

    async def _wait(self, joined: asyncio.Future[None], deadline: float) -> None:
        """Wait for the model. A stream gets comments meanwhile. Raises APIError."""
        model, interval = self._order.model, self._order.keep_alive_interval
        while not joined.done():
            left = deadline - self._loop.time()
            await asyncio.wait({joined}, timeout=min(interval or left, max(left, 0)))
            if joined.done():
                break
            if self._loop.time() >= deadline:
                waited = self._config.wait_timeout
                message = f"The model '{model.name}' was not loaded within {waited:g} s."
                raise self._fleet.unavailable(model, message)
            if not self._has_begun:
                await self._start(200, [(b"content-type", b"text/event-stream; charset=utf-8")])
            await self._write(sse.COMMENT)
        joined.result()

    async def _forward(self) -> bool:
        """Ask one server, or another if the first has seen or begun nothing. Raises APIError.

        False: no server has seen the call.
        """
        order, tried = self._order, set[Upstream]()
        upstreams = order.model.upstreams
        if order.preferred in upstreams:  # another one would say that there is no such response
            upstreams = [order.preferred]
        while upstream := choose(upstreams, order.key, self._loop.time(), tried):
            is_last = len(tried) + 1 >= len(upstreams)
            tried.add(upstream)
            with upstream.opened(self._loop.time()):
                answer = await self._ask(upstream, is_last=is_last)
                if answer is None:
                    order.model.counts["retries"] += not is_last
                    continue
                try:
                    if answer.status in REFUSALS and not is_last:
                        order.model.counts["retries"] += 1
                        continue
                    order.body.release()  # no other server is asked
                    await self._pass_on(answer, upstream)
                    return True
                finally:
                    answer.close()
        return False

    async def _ask(self, upstream: Upstream, *, is_last: bool) -> ServerAnswer | None:
        """Send the call and wait for the status. None if nothing was sent. Raises APIError.

        After the last server that may be asked, nobody needs the body once it was sent.
        """
        model, body, config = self._order.model, self._order.body, self._config
        self._fleet.watch.opened(model, upstream)
        answer = ServerAnswer(
            self._order.head(upstream.address),
            body.data,
            silence=config.answer_timeout,
            on_progress=upstream.heard,
            on_sent=body.release if is_last else lambda: None,
        )
        try:
            await answer.connect(upstream.address, config.connect_timeout)
            await answer.head()
        except ServerFailed as failure:
            answer.close()
            upstream.failed(self._loop.time())
            model.counts["failed"] += 1
            logger.warning("%s at %s: %s", model.name, upstream.address.text, failure)
            if isinstance(failure, NotSent):
                return None
            status, code, what = 502, "bad_gateway", "given no answer"
            if isinstance(failure, Silent):
                status, code, what = 504, "request_timeout", "not answered"
            message = f"The server of the model '{model.name}' has {what}: {failure}."
            raise APIError(status, message, type_="server_error", code=code) from failure
        except asyncio.CancelledError:
            answer.close()
            raise
        if answer.status == SERVICE_UNAVAILABLE:
            upstream.failed(self._loop.time())
        else:
            upstream.answered()
        return answer

    async def _pass_on(self, answer: ServerAnswer, upstream: Upstream) -> None:
        if self._has_begun and answer.status != 200:
            await self._write(await self._late_refusal(answer))
            await self._write(b"", more_body=False)
            return
        path, model = self._order.path, self._order.model
        media_type = ends.media_type_of(answer.headers)
        try:
            if not self._has_begun:
                await self._start(answer.status, response_headers(answer.headers))
            await self._pass_body(answer, upstream)
        except ServerFailed as failure:
            upstream.failed(self._loop.time())
            model.counts["cut"] += 1
            logger.warning("%s broke off an answer: %s", model.name, failure)
            message = f"The server of the model '{model.name}' has broken off: {failure}."
            last = ends.last_bytes(path, media_type, answer.last, message)
            if last is None:
                return  # without its end, the body is cut
            await self._write(last)
        else:
            model.counts["answers"] += 1
        await self._write(b"", more_body=False)

    async def _pass_body(self, answer: ServerAnswer, upstream: Upstream) -> None:
        """Raises ServerFailed if the end of the body is missing."""
        on_first = self._order.on_first if answer.status == 200 else None
        while True:
            data, is_last = await answer.receive()
            if on_first is not None and data:
                on_first(data, upstream)
                on_first = None
            if data:
                await self._write(data)
            if is_last:
                self._order.model.counts["pieces"] += answer.num_pieces
                return
            if on_first is None:
                answer.writer = body_writer(self._scope)

    async def _late_refusal(self, answer: ServerAnswer) -> bytes:
        """The event of an error response after comments were sent."""
        body = b""
        try:
            while len(body) < MAX_ERROR_BODY:
                data, is_last = await answer.receive()
                body += data
                if is_last:
                    break
        except ServerFailed:
            body = b""
        return ends.refusal_event(self._order.path, body)

    async def _start(self, status: int, headers: Headers) -> None:
        self._has_begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _write(self, data: bytes, *, more_body: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more_body})
