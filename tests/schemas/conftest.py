import importlib
import pkgutil
import re

import msgspec
import pytest

import schemas
from schemas.base import RequestModel, ResponseModel
from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest
from schemas.generate import GenerateRequest
from schemas.responses_request import ResponsesRequest
from schemas.tokenize import DetokenizeRequest, TokenizeRequest

BODIES = {
    ChatCompletionRequest: {"messages": [{"role": "user", "content": "hi"}]},
    CompletionRequest: {"prompt": "hi"},
    GenerateRequest: {"prompt": "hi"},
    ResponsesRequest: {"model": "m"},
    TokenizeRequest: {"prompt": "hi"},
    DetokenizeRequest: {"tokens": [1]},
}
"""The minimal body of every request."""


def subclasses(base: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """All Structs of the package below a base."""
    for module in pkgutil.iter_modules(schemas.__path__):
        importlib.import_module(f"schemas.{module.name}")
    found = []
    for cls in base.__subclasses__():
        found += [cls, *subclasses(cls)]
    return found


def pytest_generate_tests(metafunc):
    """Parametrize over request bodies, Structs, or responses."""
    names = metafunc.fixturenames
    if "request_type" in names:
        cases = [pytest.param(cls, body, id=cls.__name__) for cls, body in BODIES.items()]
        metafunc.parametrize(("request_type", "body"), cases)
    elif "request_struct" in names:
        metafunc.parametrize("request_struct", subclasses(RequestModel), ids=lambda c: c.__name__)
    elif "any_struct" in names:
        structs = subclasses(RequestModel) + subclasses(ResponseModel)
        metafunc.parametrize("any_struct", structs, ids=lambda cls: cls.__name__)
    elif "response" in names:
        metafunc.parametrize("response", subclasses(ResponseModel), ids=lambda c: c.__name__)


@pytest.fixture
def chat():
    """Decode a chat request from its minimal body plus fields, in both ways."""

    def decode(**fields):
        return decode_both(ChatCompletionRequest, BODIES[ChatCompletionRequest] | fields)

    return decode


@pytest.fixture
def completion():
    """Decode a completion request from its minimal body plus fields, in both ways."""

    def decode(**fields):
        return decode_both(CompletionRequest, BODIES[CompletionRequest] | fields)

    return decode


def decode_both(struct, obj):
    """Decode from bytes; conversion of decoded JSON must agree, in value and in failure."""
    body = msgspec.json.encode(obj)
    try:
        decoded = msgspec.json.decode(body, type=struct)
    except msgspec.ValidationError as error:
        with pytest.raises(msgspec.ValidationError, match=f"^{re.escape(str(error))}$"):
            msgspec.convert(obj, struct)
        raise
    assert msgspec.convert(obj, struct) == decoded
    return decoded
