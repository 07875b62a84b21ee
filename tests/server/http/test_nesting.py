import msgspec
import pytest

from core.contract.errors import InvalidRequest
from schemas.chat import ChatCompletionRequest
from schemas.limits import MAX_DEPTH
from server.http.decoding import check_nesting


def nested(levels):
    value = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


def request(**fields):
    body = {"messages": [{"role": "user", "content": "hi"}]} | fields
    return msgspec.convert(body, ChatCompletionRequest)


@pytest.mark.parametrize(
    ("name", "outer", "wrap"),
    [
        ("chat_template_kwargs", 1, lambda value: {"x": value}),
        ("guided_json", 1, lambda value: {"x": value}),
        (
            "tools",
            4,
            lambda value: [
                {"type": "function", "function": {"name": "f", "parameters": {"x": value}}}
            ],
        ),
        ("response_format", 2, lambda value: {"type": "json_object", "schema": {"x": value}}),
    ],
)
def test_the_depth_is_limited(name, outer, wrap):
    check_nesting(request(**{name: wrap(nested(MAX_DEPTH - outer))}))
    with pytest.raises(InvalidRequest) as caught:
        check_nesting(request(**{name: wrap(nested(MAX_DEPTH - outer + 1))}))
    assert caught.value.param == name
    assert f"{MAX_DEPTH + 1} levels deep; the limit is {MAX_DEPTH}" in caught.value.message


def test_real_schemas_fit():
    schema = {"type": "string"}
    for _ in range(60):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    check_nesting(request(guided_json=schema))
    check_nesting(request())
