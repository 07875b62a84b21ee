"""The OpenAPI document of a list of controllers, and the route that serves it.

What handlers declare of their responses: ``@post(responses=returns(...))``.

Litestar's own schemas lose limits of zero, nested limits and the discriminators of unions.
msgspec's schemas of the same types keep them and use the same names.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from litestar import Controller, Litestar, get
from litestar.di import Provide
from litestar.enums import MediaType
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.routes import HTTPRoute

from schemas.base import ResponseModel
from schemas.errors import ErrorResponse
from schemas.tokenize import TokenizeRequest
from server.http.apis import NDJSON, SSE
from server.translation.refusals import refused_fields

ERRORS = {
    400: "The request is invalid, or the server or model does not support it.",
    401: "The API key is missing or wrong.",
    403: "The `Host` or `Origin` header is not allowed.",
    404: "The server does not serve this model.",
    408: "The body did not arrive in time.",
    413: "The body is larger than the server allows.",
    415: "The body is not application/json.",
    429: "Too much is waiting, or a rate is reached. `retry-after` says when to try again.",
    500: "The server failed on this request.",
    503: "The server is loading, draining or failed. `retry-after` says when to try again.",
    504: "The time that the client or the operator gave the request is over.",
}

TICKETED_ERRORS = (400, 404, 408, 413, 415, 429, 500, 503, 504)
"""Statuses of the errors of a route that names a model, takes a ticket and reads a body."""


@dataclass
class StreamedSpec(ResponseSpec):
    """A response that is JSON, or a stream if the request sets ``stream``.

    ``events`` are the types of the events' ``data``. Without any the stream is plain text.
    ``error`` is the type of an event that ends the stream early. ``last`` is the data of the last
    event if it is none of these. ``stream_type`` is the stream's media type.
    """

    events: tuple[type[msgspec.Struct], ...] = ()
    error: type[msgspec.Struct] = ErrorResponse
    last: str | None = None
    stream_type: str = SSE


def returns(
    success: type[msgspec.Struct] | None,
    *errors: int,
    error: type[msgspec.Struct] = ErrorResponse,
    description: str = "Success.",
) -> dict[int, ResponseSpec]:
    """Declare a JSON response and its errors, without 401 and 403: ``describe`` adds these."""
    return {200: described(success, description), **_errors(errors, error)}


def returns_or_streams(
    success: type[msgspec.Struct],
    events: type[msgspec.Struct] | tuple[type[msgspec.Struct], ...] | None,
    *errors: int,
    error: type[msgspec.Struct] = ErrorResponse,
    last: str | None = "[DONE]",
    stream_type: str = SSE,
) -> dict[int, ResponseSpec]:
    """Declare a JSON response that may also be streamed as ``events``. None: as plain text."""
    types = events if isinstance(events, tuple) else () if events is None else (events,)
    spec = StreamedSpec(
        success,
        generate_examples=False,
        description="Success.",
        events=types,
        error=error,
        last=last,
        stream_type=stream_type,
    )
    return {200: spec, **_errors(errors, error)}


def described(type_: type[msgspec.Struct] | None, description: str) -> ResponseSpec:
    """A response of this type. None is plain text."""
    return ResponseSpec(type_, generate_examples=False, description=description)


def _errors(statuses: tuple[int, ...], type_: type[msgspec.Struct]) -> dict[int, ResponseSpec]:
    return {status: described(type_, ERRORS[status]) for status in statuses}


REFERENCE = "#/components/schemas/{name}"
NOT_SUPPORTED = "Not supported by this server: must be null."
ONLY_NEUTRAL = "Only values without effect are accepted."

_NULL = {"type": "null"}

Json = dict[str, Any]

_RULES: dict[type[msgspec.Struct], Json] = {
    TokenizeRequest: {
        "oneOf": [
            {"required": [one], "properties": {one: {"not": _NULL}, other: _NULL}}
            for one, other in (("prompt", "messages"), ("messages", "prompt"))
        ]
    }
}
"""Rules between fields that msgspec does not express."""


def component_schemas(types: set[type[msgspec.Struct]]) -> Json:
    """Schemas of the types and of every type they contain, by name."""
    ordered = sorted(types, key=lambda type_: type_.__name__)
    _, schemas = msgspec.json.schema_components(ordered, ref_template=REFERENCE)
    for schema in schemas.values():
        if "description" in schema:
            schema["description"] = inspect.cleandoc(schema["description"])
    for response in _subclasses(ResponseModel):
        if response.__name__ in schemas:
            schemas[response.__name__]["required"] = [
                field.encode_name
                for field in msgspec.structs.fields(response)
                if field.default is not msgspec.UNSET
            ]
    for type_ in ordered:
        schema = schemas[type_.__name__]
        schema.pop("additionalProperties", None)  # ignored, see server.http.decoding
        for name, has_neutral_values in refused_fields(type_).items():
            if has_neutral_values:
                schema["properties"][name]["description"] = ONLY_NEUTRAL
            else:
                schema["properties"][name] = _NULL | {"description": NOT_SUPPORTED}
        schema.update(_RULES.get(type_, {}))
    return dict(sorted(schemas.items()))


def _subclasses(type_: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for subclass in type_.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def describe(
    controllers: list[type[Controller]], dependencies: Mapping[str, Provide], *, has_keys: bool
) -> Json:
    """Build the document. ``has_keys``: routes that are not public need an API key."""
    app = Litestar(
        route_handlers=list(controllers),
        dependencies=dependencies,
        openapi_config=OpenAPIConfig(
            title="roseinfer",
            version="1",  # of /v1
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


def openapi_route(
    controllers: list[type[Controller]], dependencies: Mapping[str, Provide], *, has_keys: bool
) -> HTTPRouteHandler:
    """The route of the document that describes ``controllers``. The first request builds it."""

    @cache
    def encoded() -> bytes:
        return msgspec.json.encode(describe(controllers, dependencies, has_keys=has_keys))

    @get(
        ["/openapi.json", "/v1/openapi.json"],
        media_type=MediaType.JSON,
        include_in_schema=False,
        sync_to_thread=True,  # building the document would block the event loop
    )
    def openapi() -> bytes:
        return encoded()

    return openapi
