"""Exceptions to error responses.

Every failed request becomes an ``APIError`` here, with a status, OpenAI's error object and headers.
Messages have a limited length and contain nothing internal.
"""

from __future__ import annotations

import logging
import re
from typing import Any
from urllib.parse import quote

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.types import Scope, Send

from core.contract.errors import (
    DeadlineExceeded,
    InvalidRequest,
    QueueFull,
    RequestCancelled,
    RoseInferError,
    Unavailable,
)
from schemas.errors import ErrorObject
from server.http.apis import ID_KEY, api_at

logger = logging.getLogger("roseinfer.server")

MAX_MESSAGE_LENGTH = 500
RETRY_AFTER_SECONDS = 1
"""For a server that does not take requests at the moment."""

INVALID = "invalid_request_error"
JSON = "application/json"

ERROR_KEY = "error"
"""Key in the ``state`` of an ASGI scope: the APIError that the request was answered with."""

CUT_KEY = "cut"
"""The same, for what the connection has answered in place of the application."""


class APIError(Exception):
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


_ENGINE_ERRORS: dict[type[RoseInferError], tuple[int, str, str | None]] = {
    QueueFull: (429, "requests", "rate_limit_exceeded"),
    DeadlineExceeded: (504, "timeout_error", "request_timeout"),
    Unavailable: (503, "service_unavailable_error", "server_is_overloaded"),
}
"""Status, type and code of the engine's errors; of others, 500."""


def to_api_error(error: Exception) -> APIError:
    """Translate any exception. An unknown one is a bug of the server: 500."""
    match error:
        case APIError():
            return error
        case InvalidRequest():
            return APIError(400, error.message, param=error.param, code=error.code)
        case RequestCancelled():
            return APIError(499, "The client has left.")
        case RoseInferError():
            status, type_, code = _ENGINE_ERRORS.get(type(error), (500, "server_error", None))
            wait = getattr(error, "retry_after", None)
            if isinstance(error, Unavailable):
                wait = RETRY_AFTER_SECONDS
            headers = None if wait is None else {"retry-after": str(wait)}
            return APIError(status, str(error), type_=type_, code=code, headers=headers)
        case HTTPException():
            return _from_litestar(error)
        case _:
            return APIError(500, "The server failed on this request.", type_="server_error")


def error_response(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Litestar's exception handler for everything."""
    answer = to_api_error(error)
    if answer.status >= 500 and not isinstance(error, RoseInferError):
        path = quote(request.scope["path"])  # the decoded path may contain a line end
        logger.error("%s %s failed", request.method, path, exc_info=error)
    body, headers = _answered(request.scope, answer), retry_headers(answer)
    return Response(body, status_code=answer.status, headers=headers, media_type=JSON)


async def send_error(scope: Scope, send: Send, error: APIError) -> None:
    """Answer with an error in front of Litestar."""
    body = _answered(scope, error)
    headers = {"content-type": JSON, "content-length": str(len(body))} | retry_headers(error)
    await send(
        {
            "type": "http.response.start",
            "status": error.status,
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
    )
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _answered(scope: Any, error: APIError) -> bytes:
    """The body of the answer, which is noted in the scope."""
    state = scope.setdefault("state", {})
    state[ERROR_KEY] = error
    return api_at(scope["path"]).shape(error.status, error.error, state.get(ID_KEY))


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


def invalid(param: str, message: str) -> InvalidRequest:
    """The error of a value that no request may have."""
    return InvalidRequest(message, param=param, code="invalid_value")


def unsupported(param: str, message: str) -> InvalidRequest:
    """The error of a field or value that this server or its model does not have."""
    return InvalidRequest(message, param=param, code="unsupported_parameter")


def conflicting(param: str, message: str) -> InvalidRequest:
    """The error of a value that a field may not have beside another field."""
    return InvalidRequest(message, param=param, code="invalid_parameter_combination")


def wrong_task(message: str) -> InvalidRequest:
    """The error of a request for what the served model does not do."""
    return InvalidRequest(message, param="model", code="unsupported_task")


def stream_error(message: str) -> ErrorObject:
    return ErrorObject(message=_shortened(message), type="server_error", param=None, code=None)


def no_such_route() -> APIError:
    return APIError(404, "There is no such route.", code="unknown_url")


def body_too_large() -> APIError:
    """The error of a body above ``--max-body-size``. What is left of it is not read."""
    message, headers = "The request body is larger than the server allows.", {"connection": "close"}
    return APIError(413, message, code="request_too_large", headers=headers)


def _from_litestar(error: HTTPException) -> APIError:
    headers = dict(error.headers or {})
    match error.status_code:
        case 404:
            return no_such_route()
        case 405:
            message = "This route does not take this method."
            return APIError(405, message, code="method_not_supported", headers=headers)
        case 413:
            return body_too_large()
        case status if status < 500:
            return APIError(status, str(error.detail), headers=headers)
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
