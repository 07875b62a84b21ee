"""The body of error responses and error events (OpenAI API reference)."""

from schemas.base import ResponseModel


class ErrorObject(ResponseModel, frozen=True, kw_only=True):
    """An error. `message` is for people; `param` is the path of the field at fault."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorResponse(ResponseModel, frozen=True, kw_only=True):
    """The body of an error response."""

    error: ErrorObject
