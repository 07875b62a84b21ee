import functools

import msgspec
import pytest

from core.contract.errors import InvalidRequest
from core.contract.params import Thinking
from schemas.responses_request import ResponsesRequest
from schemas.tools import FunctionDefinition
from server.apis.responses.renderer import ResponsesRenderer
from server.apis.responses.request import translate_response
from server.apis.responses.store import ResponseStore, Shelf
from server.generation.model import ServedModel
from server.parsers.tool import TOOL_PARSERS
from server.rendering.base import ChatOptions
from server.settings.settings import Settings
from tests.support.engines import last, loaded


@pytest.fixture
def decode():
    """Decode a request with these fields."""

    def decode(**fields):
        body = {"model": "m", "input": "hi"} | fields
        body = {name: value for name, value in body.items() if value is not ...}
        return msgspec.json.decode(msgspec.json.encode(body), type=ResponsesRequest)

    return decode


@pytest.fixture(scope="session")
def model():
    return ServedModel.of(Settings(), loaded(object()))


@pytest.fixture
def shelf():
    return Shelf(ResponseStore(10, 10**6), "tenant")


@pytest.fixture
def translate(decode, model, shelf):
    """The job of a request with these fields."""
    return lambda **fields: translate_response(decode(**fields), model, shelf)


@pytest.fixture
def answer(translate):
    """The response to a request, which the model answers with ``text``."""

    def answer(text="fine", **fields):
        return msgspec.json.decode(translate(**fields).renderer.whole([last(text=text)]))

    return answer


@pytest.fixture
def refused(translate):
    """The error of a request, whose param is ``param``."""

    def refused(param, **fields):
        with pytest.raises(InvalidRequest) as caught:
            translate(**fields).new_grammars.compile("")
        assert caught.value.param == param, caught.value.message
        return caught.value

    return refused


TOOLS = [FunctionDefinition(name=name) for name in ("get_weather", "ping", "files__open")]


@pytest.fixture
def generate(generate):
    """As ``generate``, of a model that thinks, without log-probabilities unless asked for."""
    thinking = Thinking(begin="<think>", end="</think>", end_token_ids=(), is_separate=True)
    return functools.partial(generate, thinking=thinking, logprobs=False)


@pytest.fixture
def make(envelope, asked, model):
    """Make a renderer; ``fields`` are those of the request. It stores into ``renderer.kept``."""

    def make(*, num_top=None, has_tools=True, names=None, **fields):
        common, _ = envelope(asked(), num_choices=1, num_top=num_top)
        request = msgspec.convert({"model": "m", "input": "hi"} | fields, ResponsesRequest)
        parser = functools.partial(TOOL_PARSERS["hermes"], TOOLS, parallel=True)
        options = ChatOptions(new_parser=parser if has_tools else None)
        kept = []
        renderer = ResponsesRenderer(
            common,
            options,
            names=names or {},
            request=request,
            model=model,
            keep=kept.append,
        )
        renderer.kept = kept
        return renderer

    return make
