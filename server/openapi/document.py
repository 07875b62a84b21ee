"""The OpenAPI document of a list of controllers."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import msgspec
from litestar import Controller, Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.routes import HTTPRoute

from server.dependencies import NO_DEPENDENCIES
from server.openapi.components import REFERENCE, Json, component_schemas
from server.openapi.responses import ERRORS, NDJSON, StreamedSpec

API_VERSION = "1"
"""The version in the paths: /v1."""


def describe(controllers: list[type[Controller]], *, has_keys: bool) -> Json:
    """Build the document. ``has_keys``: routes that are not public need an API key."""
    app = Litestar(
        route_handlers=list(controllers),
        dependencies=NO_DEPENDENCIES,
        openapi_config=OpenAPIConfig(
            title="roseinfer",
            version=API_VERSION,
            description="An OpenAI-compatible LLM inference server.",
            use_handler_docstrings=True,
            render_plugins=[JsonRenderPlugin()],
        ),
        logging_config=None,
    )
    document: Json = deepcopy(app.openapi_schema.to_schema())
    types: set[type[msgspec.Struct]] = set()
    for path, method, handler in _handlers(app):
        _complete(document["paths"][path][method], handler, has_keys=has_keys)
        types |= _types(handler)
    document["components"] = {"schemas": component_schemas(types)}
    if has_keys:
        scheme = {"type": "http", "scheme": "bearer", "description": "One of the server's keys."}
        document["components"]["securitySchemes"] = {"key": scheme}
    return document


def _handlers(app: Litestar) -> Iterator[tuple[str, str, HTTPRouteHandler]]:
    """Path, method and handler of every described route."""
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            for method, (handler, _) in route.route_handler_map.items():
                if handler.resolve_include_in_schema() and method != "OPTIONS":
                    yield route.path_format or "/", method.lower(), handler


def _types(handler: HTTPRouteHandler) -> set[type[msgspec.Struct]]:
    """The Structs that a handler reads and writes."""
    specs = list((handler.responses or {}).values())
    types: set[Any] = {spec.data_container for spec in specs}
    for spec in specs:
        if isinstance(spec, StreamedSpec):
            types |= {*spec.events, spec.error}
    if handler.parsed_data_field is not None:
        types.add(handler.parsed_data_field.annotation)
    return types - {None}


def _complete(operation: Json, handler: HTTPRouteHandler, *, has_keys: bool) -> None:
    """Add streams, API keys and 403. Remove the 400 that Litestar adds to every route."""
    operation["summary"] = operation.pop("description").replace("``", "`")
    responses = operation["responses"]
    declared = handler.responses or {}
    if 400 not in declared:
        responses.pop("400", None)
    for status, spec in declared.items():
        if isinstance(spec, StreamedSpec):
            media_type, stream = _stream(spec)
            responses[str(status)]["content"][media_type] = {"schema": stream}
    everywhere = [403]
    if has_keys and not handler.opt.get("public"):
        operation["security"] = [{"key": []}]
        everywhere.append(401)
    for status in everywhere:
        content = deepcopy(responses["500"]["content"])
        responses[str(status)] = {"description": ERRORS[status], "content": content}
    operation["responses"] = dict(sorted(responses.items()))


def _stream(spec: StreamedSpec) -> tuple[str, Json]:
    if not spec.events:
        return "text/plain", {"type": "string", "description": "New text as it is generated."}
    names = [f"`{REFERENCE.format(name=event.__name__)}`" for event in spec.events]
    error = REFERENCE.format(name=spec.error.__name__)
    last = f" The last is `{spec.last}`." if spec.last else ""
    kind = "Lines of JSON." if spec.stream_type == NDJSON else "Server-sent events."
    # OpenAPI 3.1 has no schema for streams.
    return spec.stream_type, {
        "description": f"{kind} The data of each is one line of JSON: a {', '.join(names)}, or a "
        f"`{error}` if the stream cannot continue.{last}",
    }
