"""Errors as Anthropic's clients read them."""

import msgspec
import pytest

from schemas.errors import ErrorObject
from server.apis.anthropic.errors import anthropic_shape
from server.http.apis import api_at


def body(status=400, message="no", param=None, code=None):
    error = ErrorObject(message=message, type="x", param=param, code=code)
    return msgspec.json.decode(anthropic_shape(status, error))


@pytest.mark.parametrize(
    ("status", "type_"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (408, "timeout_error"),
        (413, "request_too_large"),
        (415, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
    ],
)
def test_the_status_is_the_type(status, type_):
    assert body(status) == {
        "type": "error",
        "error": {"type": type_, "message": "no"},
        "request_id": None,
    }


def test_the_code_is_among_the_details():
    details = {"error_code": "thread_unsupported_request", "param": "thread"}
    error = body(param="thread", code="thread_unsupported_request")["error"]
    assert error["details"] == details


@pytest.mark.parametrize(
    ("param", "named"),
    [
        ("messages[2].content[1].type", "messages[2].content[1].type"),
        ("response_format", "output_config.format"),
        ("stop", "stop_sequences"),
        ("thinking_token_budget", "thinking.budget_tokens"),
        ("tools[3].function.parameters", "tools[3].input_schema"),
        ("tools[3].function.name", "tools[3].name"),
        ("tools", "tools"),
    ],
)
def test_the_field_is_the_clients(param, named):
    error = body(message="It is wrong.", param=param)["error"]
    assert error["message"] == f"{named}: It is wrong."
    assert error["details"]["param"] == named


def test_a_message_that_names_the_field_stays():
    assert (
        body(message="'top_k' is wrong.", param="top_k")["error"]["message"] == "'top_k' is wrong."
    )


def test_a_prompt_that_is_too_long_says_so_in_anthropics_words():
    error = body(message="The context is 10.", param="messages", code="context_length_exceeded")
    assert error["error"]["message"] == "prompt is too long: The context is 10."


def test_which_paths_are_anthropics():
    for path in ("/v1/messages", "/v1/messages/count_tokens", "/v1/messages/absent"):
        assert api_at(path).shape is anthropic_shape
    assert api_at("/v1/models").shape is not anthropic_shape
