from functools import partial

import pytest

from core.contract.errors import ContextLengthExceeded, InvalidRequest
from server.apis.responses.errors import client_path, named_by_client
from tests.support.each import each

PATH_OF = partial(
    client_path,
    messages=["instructions", "input[0]", "input[2]"],
    tools=["tools[0]", "tools[1].tools[0]"],
)


@each(
    ("param", "path"),
    [
        ("messages", "input"),
        ("messages[0].content", "instructions.content"),
        ("messages[2].content[1].type", "input[2].content[1].type"),
        ("messages[3].content", "messages[3].content"),
        ("tools", "tools"),
        ("tools[1].function.name", "tools[1].tools[0].name"),
        ("tools[0].function.parameters", "tools[0].parameters"),
        ("response_format", "text.format"),
        ("max_completion_tokens", "max_output_tokens"),
        ("temperature", "temperature"),
    ],
)
def test_params(param, path):
    with pytest.raises(InvalidRequest) as caught, named_by_client(PATH_OF):
        raise InvalidRequest(f"Invalid '{param}': no.", param=param, code="c")
    assert (caught.value.param, caught.value.code) == (path, "c")
    assert caught.value.message == f"Invalid '{path}': no."


def test_without_a_param():
    with pytest.raises(InvalidRequest, match=r"^no$") as caught, named_by_client(PATH_OF):
        raise InvalidRequest("no")
    assert caught.value.param is None


def test_the_class_of_an_overflow_is_kept():
    with pytest.raises(ContextLengthExceeded) as caught, named_by_client(client_path):
        raise ContextLengthExceeded("too long", param="messages")
    assert caught.value.param == "input"
    assert caught.value.code == "context_length_exceeded"
