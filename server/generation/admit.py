"""What stands before the handlers: with_ticket admits requests, StrictRequest decodes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from litestar import Request
from litestar.enums import HttpMethod, ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from server.admission.control import SCOPE_KEY, Decision, ticket_of
from server.admission.deadline import Watched, run_until_deadline
from server.admission.pools import LARGE_BODY
from server.generation.serving import Serving
from server.http.apis import path_at
from server.http.body import check_media_type, coding_of, plain, whole_body
from server.http.decoding import decode_request
from server.http.errors import send_error
from server.http.ignored_fields import report_ignored
from server.observe.trace import trace_of

TICKETED_ERRORS = (400, 404, 408, 413, 415, 429, 500, 503, 504)
"""Statuses of the errors of a route that names a model, takes a ticket and reads a body."""


def with_ticket(app: ASGIApp) -> ASGIApp:
    """Wrap each route: it runs with the ticket that was taken for it, or answers why there is none.

    A client that disconnects cancels the route, and with it what it waits for. A deadline ends it.
    """

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or not _takes_ticket(scope):
            await app(scope, receive, send)
            return
        serving: Serving = scope["litestar_app"].state.serving
        trace = trace_of(scope)
        trace.path = scope["path_template"]  # a client may write it with more slashes
        serving.records.begin(trace)
        decision: Decision = scope["state"][SCOPE_KEY]
        if decision.error is not None:  # raised, it would cost twice as much
            await send_error(scope, send, decision.error)
            return
        ticket, rates = decision.ticket, serving.admission.rates
        assert ticket is not None
        if rates:
            send = _with_headers(send, lambda: rates.headers(decision.tenant.name))
        ticket.trace = trace
        watched = Watched(receive, on_body=ticket.body_arrived)
        trace.enter("upload")
        serving.trimmer.request_started()
        try:
            if ticket.seconds is None:
                await watched.run(app, scope, send)
            else:
                await run_until_deadline(ticket.seconds, watched, ticket, app, scope, send)
        finally:
            serving.trimmer.request_ended()
            trace.has_left = watched.was_left

    return wrapped


def _takes_ticket(scope: HTTPScope) -> bool:
    return scope["method"] == HttpMethod.POST and path_at(scope["path_template"]).has_ticket


def _with_headers(send: Send, headers: Callable[[], dict[str, str]]) -> Send:
    """Wrap ``send``: the response gets the headers as of its start."""

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            more = [(name.encode(), value.encode()) for name, value in headers().items()]
            message["headers"] = [*message["headers"], *more]
        await send(message)

    return wrapped


class StrictRequest(Request[Any, Any, Any]):
    """Decodes the body into the Struct that the handler declares.

    Litestar would decode to plain objects and convert these leniently (``"5"`` to 5). It does not
    convert a body that already has the declared type.
    """

    _whole: bytes | None = None
    """The body once it was read; empty once it was decoded."""

    async def json(self) -> Any:
        """The body as the type of the handler's ``data``. Raises APIError."""
        check_media_type(self.headers, self.scope["path"])
        coding = coding_of(self.headers)
        field = self.route_handler.parsed_data_field
        assert field is not None
        body, self._whole = await self.body(), b""
        ticket, serving = ticket_of(self.scope), self.app.state.serving
        if coding is not None:
            num_bytes = len(body)
            body = await plain(body, coding, serving.settings.max_body_size)
            ticket.body_grew(max(len(body) - num_bytes, 0))
        is_strict = serving.settings.strict_fields
        decode = partial(decode_request, body, field.annotation, is_strict=is_strict)
        if len(body) <= LARGE_BODY:
            decoded = decode()
        else:  # several passes, between which others run; the priority is not known yet
            decoded = await serving.pools.large.run(ticket.turn(), decode)
        ticket.decoded(decoded.size)
        report_ignored(self.scope, decoded.ignored)
        return decoded.request

    async def body(self) -> bytes:
        """The bytes of the body. Raises APIError if the body is empty or incomplete.

        They are kept until ``json`` takes them. Litestar's method would keep them with the scope,
        until the answer is sent.
        """
        if self._whole is None:
            self._whole = await whole_body(self._read)
        return self._whole

    async def _read(self) -> bytes:
        return b"".join([piece async for piece in self.stream()])
