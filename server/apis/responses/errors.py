"""Errors of a request: their params name the client's fields, not those of chat completions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from core.contract.errors import InvalidRequest
from schemas.errors import ErrorObject
from server.http import errors
from server.http.apis import error_event

T = TypeVar("T")

FIELDS: Mapping[str, str] = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "response_format.json_schema": "text.format",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "logprobs": "top_logprobs",
}
"""From the field of a chat request to the client's."""

_MESSAGE = re.compile(r"messages\[(?P<index>\d+)\](?P<rest>.*)", re.DOTALL)
_TOOL = re.compile(r"tools\[(?P<index>\d+)\](?:\.function)?(?P<rest>.*)", re.DOTALL)


def client_path(param: str, *, messages: Sequence[str] = (), tools: Sequence[str] = ()) -> str:
    """The client's name of a field of the chat request.

    ``messages`` and ``tools`` are the paths in the client's body of those of the chat request.
    """
    for pattern, paths in ((_MESSAGE, messages), (_TOOL, tools)):
        match = pattern.fullmatch(param)
        if match is not None and int(match["index"]) < len(paths):
            return paths[int(match["index"])] + match["rest"]
    return FIELDS.get(param, param)


@contextmanager
def named_by_client(path_of: Callable[[str], str]) -> Iterator[None]:
    """Rename the param of an InvalidRequest, in its message too."""
    try:
        yield
    except InvalidRequest as error:
        if error.param is not None:
            param, message = path_of(error.param), error.message
            message = message.replace(f"'{error.param}", f"'{param}")
            if message.startswith(error.param):
                message = param + message.removeprefix(error.param)
            error.message, error.param, error.args = message, param, (message,)
        raise


def given(value: T | None, param: str) -> T:
    """The value of a field that must be there. Raises InvalidRequest."""
    if value is None:
        raise errors.missing(param)
    return value


def unsupported(param: str, what: str) -> InvalidRequest:
    """The error of something that this server does not have."""
    return errors.unsupported(param, f"'{param}': {what} not supported by this server.")


_NUMBER = re.compile(rb'"sequence_number"\s*:\s*(\d+)')


def numbered_event(error: ErrorObject, _body: bytes, last: bytes) -> bytes:
    """The event that ends a stream with an error. Its number follows that of the last event.

    (OpenAI API reference, responses, streaming.)
    """
    numbers = _NUMBER.findall(last)
    event = {
        "type": "error",
        "code": error.code,
        "message": error.message,
        "param": error.param,
        "sequence_number": int(numbers[-1]) + 1 if numbers else 0,
    }
    return error_event(error, msgspec.json.encode(event), last)
