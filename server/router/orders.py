"""order_of: from a client's request to an Order."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from litestar import Request

import server.apis  # noqa: F401 - registers the APIs
from server.http.apis import ID_KEY, SSE, api_at, path_at
from server.http.body import check_media_type
from server.http.errors import APIError, no_such_route
from server.http.paths import full_path, ticketed_urls
from server.router.order import SCOPE_KEY, HeldBody, Order
from server.router.routing import Routing
from server.router.upstreams.call import (
    UpstreamQuery,
    UpstreamRequest,
    asked,
    key_of,
    request_headers,
    with_model,
)
from server.router.upstreams.model import RoutedModel
from server.router.upstreams.upstream import Upstream
from server.tenants.tenant import tenant_of

AnyRequest = Request[Any, Any, Any]

LARGE_BODY = 64 * 1024
"""Bytes above which other requests have a turn between two passes over a body."""

_FOREIGN = {"apply-template", "classify", "completion", "infill", "pooling"}
"""Generating paths of other servers, without /v1."""


def _bare(path: str) -> str:
    return path.removeprefix("/v1").removeprefix("/")


_GENERATING = frozenset({*map(_bare, ticketed_urls()), *_FOREIGN})
"""Paths, without /v1, at which a request that names no model gets the default one."""


async def order_of(request: AnyRequest, routing: Routing) -> Order:
    """Read a request that names a model. Raises APIError."""
    path = full_path(request.scope["path"])
    known = path_at(path)
    # The models' servers do not see the origin, so it is checked here.
    check_media_type(request.headers, path)
    held: HeldBody = request.scope["state"][SCOPE_KEY]
    body = await held.read(request)
    wanted = asked(body)
    if len(body) > LARGE_BODY:
        await asyncio.sleep(0)  # other requests have a turn between two passes
    model = _model(routing, wanted, path)
    tenant = tenant_of(request.scope).name
    there, preferred = model.name_there, None
    if there is not None and wanted.model_name not in {None, there}:
        held.data = with_model(body, wanted, there)
    if known.keeps_answers and wanted.previous_response_id is not None:
        preferred = _server_of(routing, wanted.previous_response_id, tenant, model)
    has_choice = len(model.upstreams) > 1
    is_stream = wanted.stream is True and known.stream == SSE
    note = partial(_note, routing, tenant, model) if known.keeps_answers else None
    return Order(
        call=_call(request, is_stream=is_stream),
        body=held,
        model=model,
        tenant=tenant,
        request_id=request.scope["state"][ID_KEY],
        key=key_of(wanted) if has_choice else b"",
        preferred=preferred,
        keep_alive_interval=routing.settings.keep_alive_interval,
        on_first=note,
    )


def order_of_response(request: AnyRequest, routing: Routing, response_id: str) -> Order:
    """Pass on a request about a stored response. Raises APIError."""
    tenant = tenant_of(request.scope).name
    found = routing.responses.find(response_id, tenant)
    model = None if found is None else routing.fleet.models[found[0]]
    if found is None or model is None or found[1] not in model.upstreams:
        raise _response_not_found(response_id)
    return Order(
        call=_call(request, is_stream=False),
        body=request.scope["state"][SCOPE_KEY],
        model=model,
        tenant=tenant,
        request_id=request.scope["state"][ID_KEY],
        preferred=found[1],
    )


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


def _server_of(routing: Routing, response_id: str, tenant: str, model: RoutedModel) -> Upstream:
    """The server that keeps a response. Its tenant is known to the router only."""
    found = routing.responses.find(response_id, tenant)
    if found is None or found[1] not in model.upstreams:
        raise APIError(
            404,
            f"Previous response with id '{response_id[:64]}' not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    return found[1]


def _note(
    routing: Routing, tenant: str, model: RoutedModel, data: bytes, upstream: Upstream
) -> None:
    routing.responses.note(data, tenant, model.name, upstream)


def _response_not_found(response_id: str) -> APIError:
    return APIError(
        404,
        f"Response with id '{response_id[:64]}' not found.",
        param="response_id",
        code="response_not_found",
    )


def _call(request: AnyRequest, *, is_stream: bool) -> UpstreamRequest:
    scope = request.scope
    target = scope["raw_path"]
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    client = scope.get("client")
    headers = request_headers(
        scope["headers"],
        client=None if client is None else client[0],
        request_id=scope["state"][ID_KEY],
    )
    return UpstreamRequest(scope["method"], full_path(scope["path"]), target, headers, is_stream)
