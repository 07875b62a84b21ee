"""Order: a client's request, its model, and who wants it."""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeAlias

from litestar import Request

import server.apis  # noqa: F401 - registers the APIs
from server.admission.budget import HeldBody
from server.client.answer import Address, Headers, request_head
from server.http.apis import ID_KEY, SSE, api_at, path_at, table
from server.http.body import check_media_type, coding_of, plain, whole_body
from server.http.errors import APIError, no_such_route
from server.http.paths import full_path
from server.router.call import UpstreamQuery, asked, key_of, request_headers, with_model
from server.router.routing import Routing
from server.router.upstream import RoutedModel, Upstream
from server.tenants.tenant import tenant_of

AnyRequest: TypeAlias = Request[Any, Any, Any]

LARGE_BODY = 64 * 1024
"""Bytes above which other requests have a turn between two passes over a body."""

_FOREIGN = {"apply-template", "classify", "completion", "infill", "pooling"}
"""Generating paths of other servers, without /v1."""


def _bare(path: str) -> str:
    return path.removeprefix("/v1").removeprefix("/")


_GENERATING = {_bare(path) for path, known in table().items() if known.has_ticket} | _FOREIGN
"""Paths, without /v1, at which a request that names no model gets the default one."""

SCOPE_KEY = "held_body"  # key in the ``state`` of an ASGI scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A request as it is passed on. ``path`` is its long form; ``target`` is as it was sent."""

    method: str
    path: str
    target: bytes
    headers: Headers
    body: HeldBody
    model: RoutedModel
    tenant: str
    request_id: str
    key: bytes = b""
    """Names the conversation, if there are several servers to choose from."""
    preferred: Upstream | None = None
    keep_alive_interval: float = 0.0
    """Seconds between comments while it waits for its model. 0: none."""
    on_first: Callable[[bytes, Upstream], None] | None = None
    """Gets the first piece of a successful answer's body."""

    @classmethod
    def of(cls, request: AnyRequest, model: RoutedModel, **known: Any) -> Self:
        """The order of a request; ``known`` are its further fields."""
        scope = request.scope
        state, client = scope["state"], scope.get("client")
        query = scope["query_string"]
        return cls(
            method=scope["method"],
            path=full_path(scope["path"]),
            target=scope["raw_path"] + (b"?" + query if query else b""),
            headers=request_headers(
                scope["headers"],
                client=None if client is None else client[0],
                request_id=state[ID_KEY],
            ),
            body=state[SCOPE_KEY],
            model=model,
            tenant=tenant_of(scope).name,
            request_id=state[ID_KEY],
            **known,
        )

    def head(self, address: Address) -> bytes:
        """The bytes that a server gets before the body."""
        key, size = self.model.api_key, len(self.body.data)
        return request_head(self.method, self.target, self.headers, address, key=key, size=size)


async def order_of(request: AnyRequest, routing: Routing) -> Order:
    """Read a request that names a model. Raises APIError."""
    path = full_path(request.scope["path"])
    known = path_at(path)
    # The models' servers do not see the origin, so it is checked here.
    check_media_type(request.headers, path)
    held: HeldBody = request.scope["state"][SCOPE_KEY]
    body = await _read(request, held)
    wanted = asked(body)
    if len(body) > LARGE_BODY:
        await asyncio.sleep(0)  # other requests have a turn between two passes
    model = _model(routing, wanted, path)
    tenant = tenant_of(request.scope).name
    there, preferred, note = model.name_there, None, None
    if there is not None and wanted.model_name not in {None, there}:
        held.data = with_model(body, wanted, there)
    if known.keeps_answers:
        note = partial(routing.responses.note, tenant, model.name)
        if (previous := wanted.previous_response_id) is not None:
            _, preferred = _kept(routing, previous, tenant, "previous_response", model)
    is_stream = wanted.stream is True and known.stream == SSE
    return Order.of(
        request,
        model,
        key=key_of(wanted) if len(model.upstreams) > 1 else b"",
        preferred=preferred,
        keep_alive_interval=routing.settings.keep_alive_interval if is_stream else 0.0,
        on_first=note,
    )


async def _read(request: AnyRequest, held: HeldBody) -> bytes:
    """Read the whole body, without its coding and byte order mark. Raises APIError."""
    coding = coding_of(request.headers)
    body = await whole_body(request)
    if coding is not None:
        coded_size = len(body)
        body = await plain(body, coding, held.most)
        held.take(max(len(body) - coded_size, 0))
    held.data = body.removeprefix(BOM_UTF8)
    return held.data


def order_of_response(request: AnyRequest, routing: Routing, response_id: str) -> Order:
    """Pass on a request about a stored response. Raises APIError."""
    model, upstream = _kept(routing, response_id, tenant_of(request.scope).name, "response")
    return Order.of(request, model, preferred=upstream)


def _model(routing: Routing, wanted: UpstreamQuery, path: str) -> RoutedModel:
    if wanted.model_name is not None:
        return routing.model(wanted.model_name, tag=api_at(path).model_tag)
    if _bare(path) not in _GENERATING:
        raise no_such_route()
    model = routing.default_model()
    if model is None:
        raise APIError(
            400,
            "Missing required parameter: 'model'. There are several models and no default.",
            param="model",
            code="missing_required_parameter",
        )
    return model


def _kept(
    routing: Routing, response_id: str, tenant: str, what: str, model: RoutedModel | None = None
) -> tuple[RoutedModel, Upstream]:
    """The model, and the server that keeps a response. With ``model``, it has to be that one.

    The response's tenant is known to the router only.
    """
    found = routing.responses.get(tenant, response_id)
    if found is not None:
        owner = model or routing.fleet.models[found[0]]
        if found[1] in owner.upstreams:
            return owner, found[1]
    raise APIError(
        404,
        f"{what.capitalize().replace('_', ' ')} with id '{response_id[:64]}' not found.",
        param=f"{what}_id",
        code=f"{what}_not_found",
    )
