"""Exceptions to error responses.

Every failed request becomes an ``APIError`` here, with a status, OpenAI's error object and headers.
``server.http.apis`` has the shape of each API. Messages have a limited length and contain nothing
internal.
"""

from __future__ import annotations

import logging
import re
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.types import Scope, Send

from core.contract.errors import (
    ContextLengthExceeded,
    DeadlineExceeded,
    GenerationFailed,
    InvalidRequest,
    QueueFull,
    RequestCancelled,
    RoseInferError,
    Unavailable,
)
from schemas.errors import ErrorObject
from server.http.apis import ID_KEY, shape_at

logger = logging.getLogger("roseinfer.server")

MAX_MESSAGE_LENGTH = 500
RETRY_AFTER_SECONDS = 1
"""For a server that does not take requests at the moment."""

INVALID = "invalid_request_error"

ERROR_KEY = "error"
"""Key in the ``state`` of an ASGI scope: the APIError that the request was answered with."""

CUT_KEY = "cut"
"""The same, for what the connection has answered in place of the application."""


class APIError(Exception):
    """An error response."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type_: str = INVALID,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error = ErrorObject(message=_shortened(message), type=type_, param=param, code=code)
        self.headers = headers or {}


def to_api_error(error: Exception) -> APIError:  # noqa: PLR0911 - a table
    """Translate any exception. An unknown one is a bug of the server: 500."""
    match error:
        case APIError():
            return error
        case ContextLengthExceeded() | InvalidRequest():
            return APIError(400, error.message, param=error.param, code=error.code)
        case QueueFull():
            return APIError(
                429,
                str(error),
                type_="requests",
                code="rate_limit_exceeded",
                headers={"retry-after": str(error.retry_after)},
            )
        case RequestCancelled():
            return APIError(499, "The client has left.")
        case DeadlineExceeded():
            wait = error.retry_after
            return APIError(
                504,
                str(error),
                type_="timeout_error",
                code="request_timeout",
                headers=None if wait is None else {"retry-after": str(wait)},
            )
        case Unavailable():
            return APIError(
                503,
                str(error),
                type_="service_unavailable_error",
                code="server_is_overloaded",
                headers={"retry-after": str(RETRY_AFTER_SECONDS)},
            )
        case GenerationFailed() | RoseInferError():
            return APIError(500, str(error), type_="server_error")
        case HTTPException():
            return _from_litestar(error)
        case _:
            return APIError(500, "The server failed on this request.", type_="server_error")


def error_response(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Litestar's exception handler for everything."""
    api_error = to_api_error(error)
    if api_error.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(
        error, RoseInferError
    ):
        path = quote(request.scope["path"])  # the decoded path may contain a line end
        logger.error("%s %s failed", request.method, path, exc_info=error)
    request.scope.setdefault("state", {})[ERROR_KEY] = api_error
    return Response(
        _body(request.scope, api_error),
        status_code=api_error.status,
        headers=retry_headers(api_error),
        media_type="application/json",
    )


async def send_error(scope: Scope, send: Send, error: APIError) -> None:
    """Answer with an error in front of Litestar."""
    scope.setdefault("state", {})[ERROR_KEY] = error
    body = _body(scope, error)
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    headers |= retry_headers(error)
    await send(
        {
            "type": "http.response.start",
            "status": error.status,
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
    )
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _body(scope: Any, error: APIError) -> bytes:
    request_id = scope.get("state", {}).get(ID_KEY)
    return shape_at(scope["path"])(error.status, error.error, request_id)


def retry_headers(error: APIError) -> dict[str, str]:
    """The error's own headers, and whether a repetition may succeed.

    Without retry-after, the same request would fail again.
    """
    may_retry = "retry-after" in error.headers
    return {**error.headers, "x-should-retry": "true" if may_retry else "false"}


def missing(param: str) -> InvalidRequest:
    """The error of a field that must be there."""
    return InvalidRequest(
        f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter"
    )


def unsupported(message: str, param: str) -> InvalidRequest:
    """The error of something that the API has and this server has not."""
    return InvalidRequest(message, param=param, code="unsupported_parameter")


def invalid(message: str, param: str) -> InvalidRequest:
    """The error of something that the API does not allow."""
    return InvalidRequest(message, param=param, code="invalid_value")


def stream_error(message: str) -> ErrorObject:
    """The error of a stream that cannot continue."""
    return ErrorObject(message=_shortened(message), type="server_error", param=None, code=None)


def no_such_route() -> APIError:
    """The error of a path that nothing answers."""
    return APIError(404, "There is no such route.", code="unknown_url")


def body_too_large() -> APIError:
    """The error of a body above ``--max-body-size``. What is left of it is not read."""
    return APIError(
        413,
        "The request body is larger than the server allows.",
        code="request_too_large",
        headers={"connection": "close"},
    )


def _from_litestar(error: HTTPException) -> APIError:
    match error.status_code:
        case 404:
            return no_such_route()
        case 405:
            return APIError(
                405,
                "This route does not take this method.",
                code="method_not_supported",
                headers=dict(error.headers or {}),
            )
        case 413:
            return body_too_large()
        case status if status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return APIError(status, str(error.detail), headers=dict(error.headers or {}))
        case status:
            return APIError(status, "The server failed on this request.", type_="server_error")


def invalid_body(error: Exception) -> APIError:
    """The error of a body that could not be decoded. Names the field if there is one."""
    match error:
        case msgspec.ValidationError():
            return _invalid_field(str(error))
        case UnicodeDecodeError():
            return APIError(400, "The body is not valid UTF-8.")
        case RecursionError():
            return APIError(400, "The body is nested too deeply.")
        case _:
            return APIError(400, f"The body is not valid JSON: {error}")


_PATH = re.compile(r" - at `(?:key` in `)?\$\.?(?P<path>[^`]*)`$")
_MISSING = re.compile(r"^Object missing required field `(?P<field>[^`]+)`")
_LIMIT = re.compile(r"^Expected `(?P<type>\w+)[^`]*` (?P<operator>>=|<=|>|<) ")
_LENGTH = re.compile(r"^Expected `(?P<type>\w+)[^`]*` of length (?P<operator>>=|<=) (?P<limit>\d+)")
_NAME = re.compile(r"\[a-zA-Z0-9_(?P<dot>\.?)-\]\{1,(?P<most>\d+)\}")
_KINDS = {"int": "integer", "float": "decimal"}


def _invalid_field(text: str) -> APIError:
    """Parse a message of msgspec: ``Expected `int`, got `str` - at `$.messages[0].n```."""
    path = _PATH.search(text)
    param = path["path"] if path else ""
    reason = _PATH.sub("", text)
    absent = _MISSING.match(reason)
    if absent:
        return to_api_error(missing(f"{param}.{absent['field']}".lstrip(".")))
    if not param:
        return APIError(400, f"The body is not what was expected: {reason}.")
    if reason.startswith("Expected `str` matching regex "):
        name = _NAME.search(reason)
        rule = (
            f"letters, digits, _{', .' if name['dot'] else ''} and -, at most {name['most']}"
            if name
            else "other characters"
        )
        reason = f"It must be of {rule}"
    return APIError(400, f"Invalid '{param}': {reason}.", param=param, code=_code(reason))


def _code(reason: str) -> str:
    limit = _LIMIT.match(reason)
    if limit:
        kind = _KINDS.get(limit["type"], "decimal")
        return f"{kind}_{'below_min' if limit['operator'].startswith('>') else 'above_max'}_value"
    length = _LENGTH.match(reason)
    if length:
        kind = "string" if length["type"] == "str" else "array"
        if length["operator"] == "<=":
            return f"{kind}_above_max_length"
        return "empty_array" if kind == "array" else "invalid_value"
    return "invalid_type" if reason.startswith("Expected") else "invalid_value"


def _shortened(message: str) -> str:
    if len(message) <= MAX_MESSAGE_LENGTH:
        return message
    return message[: MAX_MESSAGE_LENGTH - 1] + "…"
