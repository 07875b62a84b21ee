import copy

import msgspec
import pytest

from schemas.anthropic import MessagesRequest
from server.generation.model import ServedModel
from server.settings.settings import Settings
from tests.support.engines import loaded
from tests.support.tokenizers import byte_level


@pytest.fixture
def model():
    """Make a model of this chat template; by default one that takes everything."""

    def model(template=None, **settings):
        inner = copy.deepcopy(byte_level())
        if template is not None:
            inner.chat_template = template
        return ServedModel.of(Settings(**settings), loaded(object(), inner))

    return model


@pytest.fixture
def decoded():
    """Make a request from the fields of its body."""

    def decoded(*, type_=MessagesRequest, **fields):
        body = {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]} | fields
        if type_ is not MessagesRequest:
            del body["max_tokens"]
        return msgspec.json.decode(msgspec.json.encode(body), type=type_)

    return decoded
