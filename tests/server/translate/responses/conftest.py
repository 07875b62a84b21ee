import msgspec
import pytest

from core.contract.errors import InvalidRequest
from schemas.responses_request import ResponsesRequest
from server.response_store import ResponseStore
from server.served_model import ServedModel
from server.settings import Settings
from server.translate.responses.job import translate_response
from server.translate.responses.kept import Shelf
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
