"""Errors in Ollama's shape."""

from __future__ import annotations

import msgspec

from schemas.errors import ErrorObject
from schemas.ollama_answer import OllamaError


def ollama_shape(_status: int, error: ErrorObject, _request_id: str | None = None) -> bytes:
    """``{"error": "..."}``. The message begins with the field at fault if it does not name it."""
    param = "format" if error.param == "response_format" else error.param
    is_named = param is None or param in error.message
    message = error.message if is_named else f"{param}: {error.message}"
    return msgspec.json.encode(OllamaError(error=message))
