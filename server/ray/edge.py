"""The edge of Ray Serve: a middleware of its HTTP proxies.

Serve's proxies find it by the environment variable
``RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=server.ray.edge:middlewares``. It does what a proxy
can do and a replica cannot: choose the replica by the conversation, and say in the API's own shape
that there is none.
"""

from __future__ import annotations

import os
from typing import Any

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

import server.apis  # noqa: F401 - registers the APIs
from core.contract.errors import QueueFull, Unavailable
from server.admission.budget import Budget, HeldBody
from server.http.body import declared_size
from server.http.ends import last_bytes, media_type_of
from server.http.errors import APIError, body_too_large, no_such_route, send_error, to_api_error
from server.observe.access_log import id_headers, id_of
from server.ray.plan import RETRY_AFTER
from server.router.call import conversation_key
from server.settings.settings import parse_settings
from server.tenants.tenant import tenant_at

HELD_BODIES = 4
"""Bodies of the largest size that one proxy may hold while they arrive; one address, half of it."""

SESSION = b"x-session-id"
"""The header by whose value Serve's router chooses the replica."""

REQUEST_ID = b"x-request-id"

_OWN_PATHS = "/-/"  # paths that Serve's proxies answer themselves, in plain text


def middlewares() -> list[Any]:
    """The middlewares of Serve's proxies. ROSEINFER_MAX_BODY_SIZE limits bodies."""
    from starlette.middleware import Middleware  # noqa: PLC0415 - comes with ray[serve]

    name = "ROSEINFER_MAX_BODY_SIZE"
    settings = parse_settings(["serve"], {name: os.environ.get(name, "")})
    return [Middleware(Edge, max_body_size=settings.max_body_size)]


class Edge:
    """ASGI middleware: conversation, id and size of a request; shape and end of an answer.

    Event loop of the proxy only.
    """

    def __init__(self, app: ASGIApp, max_body_size: int) -> None:
        self._app = app
        self._max_body_size = max_body_size
        self.bodies = Budget(
            HELD_BODIES * max_body_size,
            full="Too many large requests arrive.",
            most_each=HELD_BODIES // 2 * max_body_size,
        )
        """Bytes of the bodies that arrive."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or scope["path"].startswith(_OWN_PATHS):
            await self._app(scope, receive, send)
            return
        request_id = id_of(scope["headers"])
        answer = _Answer(scope, send, request_id)
        try:
            body = await self._body(scope, receive)
        except (APIError, QueueFull) as error:
            await answer.refuse(to_api_error(error))
            return
        if body is None:
            return  # the client has left
        headers = [(n, v) for n, v in scope["headers"] if n != REQUEST_ID]
        headers.append((REQUEST_ID, request_id))
        if not any(name == SESSION for name, _ in headers) and (key := conversation_key(body)):
            headers.append((SESSION, key.hex().encode()))
        receive = _replayed(body, receive)
        del body  # an answer takes longer than its request
        passed_on: Any = {**scope, "headers": headers}
        await self._app(passed_on, receive, answer.send)
        await answer.end()

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body; None if the client leaves. Raises APIError, or QueueFull without room."""
        if (declared_size(scope["headers"]) or 0) > self._max_body_size:
            raise body_too_large()
        held = HeldBody(self.bodies, tenant_at(scope.get("client")).name, self._max_body_size)
        pieces: list[bytes] = []
        try:
            while True:
                message: Any = await receive()
                if message["type"] != "http.request":
                    return None
                piece = message.get("body", b"")
                held.take(len(piece))
                pieces.append(piece)
                if not message.get("more_body", False):
                    return b"".join(pieces)
        finally:
            held.release()


class _Answer:
    """One answer on its way to the client. Event loop only."""

    def __init__(self, scope: Scope, send: Send, request_id: bytes) -> None:
        self._path = _route_of(scope["path"])
        self._send = send
        self._request_id = request_id
        self._refusal: Any = None
        self._media_type = ""
        self._last = b""
        self._has_begun = self._has_ended = False

    async def send(self, message: Message) -> None:
        """Pass on a message of Serve's. Its own refusals, which are plain text, get a shape."""
        if message["type"] == "http.response.start":
            headers = [(name.lower(), value) for name, value in message["headers"]]
            self._media_type = media_type_of(headers)
            if message["status"] >= 400 and self._media_type == "text/plain":
                self._refusal = message
                return
            self._has_begun = True
            headers = [pair for pair in headers if pair[0] != REQUEST_ID]
            message["headers"] = [*headers, (REQUEST_ID, self._request_id)]
        elif self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            await self.refuse(_refusal(refusal["status"]))
            return
        elif message["type"] == "http.response.body":
            if self._has_ended:
                return  # of a refusal
            self._last = message.get("body") or self._last
            self._has_ended = not message.get("more_body", False)
        await self._send(message)

    async def refuse(self, error: APIError) -> None:
        """Answer with an error of the API that the path belongs to."""
        self._has_begun = self._has_ended = True
        state = {"request_id": self._request_id.decode()}
        for name, value in id_headers(self._path, self._request_id):
            error.headers[name.decode()] = value.decode()
        await send_error({"path": self._path, "state": state}, self._send, error)  # type: ignore[arg-type]

    async def end(self) -> None:
        """End what a replica that has died leaves open.

        A stream ends with an error event, and no DONE. Other answers that have begun are cut,
        which no client takes for an end. The rest is a 502, which may be sent again.
        """
        if not self._has_begun:
            await self.refuse(_refusal(502))
        elif not self._has_ended:
            message = "The replica that answered has ended."
            last = last_bytes(self._path, self._media_type, self._last, message)
            if last is not None:
                await self._send({"type": "http.response.body", "body": last, "more_body": False})


def _refusal(status: int) -> APIError:
    """The error that Serve has refused a request with. Its text may name what is internal."""
    match status:
        case 404:
            return no_such_route()
        case 429:
            message = "All replicas are busy and too many requests wait."
            return to_api_error(QueueFull(message, retry_after=RETRY_AFTER))
        case 503:
            return to_api_error(Unavailable("No replica is available."))
        case 408 | 504:
            return APIError(504, "The request took too long.", type_="timeout_error")
        case _:
            message = "The replica failed on this request, or has ended."
            headers = {"retry-after": str(RETRY_AFTER)}
            return APIError(status, message, type_="server_error", headers=headers)


def _route_of(path: str) -> str:
    """The path below the prefix of an application: the name of an API tells where it begins.

    ``/api`` may be the prefix of an application whose path goes on with ``/v1``.
    """
    for name in ("/v1/", "/api/"):
        if (at := path.find(name)) >= 0:
            return path[at:]
    return path


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that gives the body first, in one piece, and then what comes after it."""
    left = [body]

    async def replayed() -> Any:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        message: Any = await receive()
        return {"type": "http.disconnect"} if message["type"] == "http.request" else message

    return replayed
