"""What a router reads of a request, and the one field that it may replace."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.client.answer import Address, parse_url, request_head
from server.http.errors import APIError
from server.router import call
from server.router.call import (
    MAX_BEGINNING,
    MAX_PLACES,
    asked,
    conversation_key,
    request_headers,
    response_headers,
    with_model,
)


def body(**fields):
    return json.dumps(fields).encode()


def test_the_model_is_read_and_nothing_else_is_checked():
    found = asked(body(model="m", stream=True, messages="not a list", n={"x": [1]}))
    assert (found.model_name, found.stream) == ("m", True)
    assert asked(b'{"name": "m:latest"}').model_name == "m:latest"
    assert asked(b"{}").model_name is None


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"model": 5}', b'{"model": "\xff"}', b"nul"])
def test_a_body_that_names_no_model_properly_is_a_400(data):
    with pytest.raises(APIError) as raised:
        asked(data)
    assert raised.value.status == 400


def test_only_the_models_name_is_replaced():
    data = b'{ "metadata": {"model": "a"}, "x":"\\"model\\": \\"a\\"",  "model" :\t"a", "y": 1.50 }'
    changed = with_model(data, asked(data), 'b"c')
    assert changed == data.replace(b'\t"a"', b'\t"b\\"c"')


def test_an_escaped_name_is_found_and_an_escaped_key_refused():
    data = b'{"model": "\\u0061"}'
    assert with_model(data, asked(data), "b") == b'{"model": "b"}'
    data = b'{"mod\\u0065l": "a"}'
    with pytest.raises(APIError):
        with_model(data, asked(data), "b")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["model", "name", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["a", "metadata", "tools"]), JSON), st.text(min_size=1))
def test_any_other_field_keeps_its_value(fields, new):
    data = body(**fields, model="old", z=1)
    assert json.loads(with_model(data, asked(data), new)) == {**fields, "model": new, "z": 1}


def test_headers_of_the_connection_and_keys_stay_here():
    given_headers = [
        (b"host", b"router"),
        (b"authorization", b"Bearer secret"),
        (b"x-api-key", b"secret"),
        (b"origin", b"http://page"),
        (b"connection", b"keep-alive, X-Hop"),
        (b"x-hop", b"1"),
        (b"transfer-encoding", b"chunked"),
        (b"content-length", b"5"),
        (b"x-forwarded-for", b"6.6.6.6"),
        (b"content-type", b"application/json"),
        (b"anthropic-version", b"1"),
    ]
    kept = request_headers(given_headers, client="1.2.3.4", request_id="r")
    assert kept == [
        (b"content-type", b"application/json"),
        (b"anthropic-version", b"1"),
        (b"x-request-id", b"r"),
        (b"x-forwarded-for", b"1.2.3.4"),
    ]
    address = parse_url("http://h:1/base/v1")
    head = request_head("POST", b"/v1/x?y=%20", kept, address, key="theirs", size=5)
    assert head.startswith(b"POST /base/v1/x?y=%20 HTTP/1.1\r\nhost: h:1\r\nconnection: close\r\n")
    assert b"content-length: 5\r\n" in head
    assert b"authorization: Bearer theirs\r\n" in head
    assert b"secret" not in head
    assert response_headers([(b"date", b"x"), (b"x-request-id", b"r"), (b"a", b"b")]) == [
        (b"a", b"b")
    ]


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://h", Address("h", 80)),
        ("https://h/v1/", Address("h", 443, "", is_tls=True)),
        ("http://[::1]:9/x", Address("::1", 9, "/x")),
        ("unix:/run/x.sock", Address(socket_path="/run/x.sock")),
    ],
)
def test_urls(url, address):
    assert parse_url(url) == address


def test_a_conversation_keeps_its_key_as_it_grows():
    system = {"role": "system", "content": "s"}
    first, other = {"role": "user", "content": "1"}, {"role": "user", "content": "2"}
    answer = {"role": "assistant", "content": "a"}
    key = conversation_key(body(messages=[system, first]))
    assert key
    assert key == conversation_key(body(model="m", messages=[system, first, answer, other]))
    assert key != conversation_key(body(messages=[system, other]))
    assert key != conversation_key(body(messages=[first]))
    assert key != conversation_key(body(messages=[system, first], tools=[{"x": 1}]))


@pytest.mark.parametrize("field", ["prompt", "input"])
def test_a_prompt_keeps_its_key_as_it_grows_behind_its_beginning(field):
    start = "p" * 2000
    key = conversation_key(body(**{field: start}))
    assert key == conversation_key(body(**{field: start + "x"}))
    assert key != conversation_key(body(**{field: "q" + start}))


@pytest.mark.parametrize("data", [b"{}", b"[]", b'{"messages": 5}', b'{"messages": [[]]}', b"\xff"])
def test_other_bodies_have_no_key_or_one_and_raise_nothing(data):
    assert isinstance(conversation_key(data), bytes)


def test_names_of_many_tools_before_the_model_are_passed_over():
    calls = [{"type": "function", "function": {"name": "read_file"}}] * 200
    data = body(messages=[{"role": "assistant", "tool_calls": calls}], model="a")
    assert with_model(data, asked(data), "b") == data.replace(b'"model": "a"', b'"model": "b"')


def test_many_fields_of_the_same_name_and_value_cost_one_reading():
    data = body(messages=[{"model": "a", "name": "a"}] * 3000, model="a")
    changed = json.loads(with_model(data, asked(data), "b"))
    assert changed == {"messages": [{"model": "a", "name": "a"}] * 3000, "model": "b"}


def test_a_place_beyond_the_limit_is_a_400():
    data = body(messages=[{"model": "a"}] * MAX_PLACES, model="a")
    with pytest.raises(APIError):
        with_model(data, asked(data), "b")


def test_a_long_conversation_is_read_through_its_beginning_only():
    first = {"role": "user", "content": "é" * MAX_BEGINNING}
    key = conversation_key(body(messages=[first]))
    assert key == conversation_key(body(messages=[first, {"role": "user", "content": "more"}]))
    assert key != conversation_key(body(messages=[{"role": "user", "content": "é"}]))


def test_what_follows_the_beginning_is_not_read(monkeypatch):
    seen = []
    real = call._decode_item

    def decode(text, at):
        seen.append(len(text))
        return real(text, at)

    monkeypatch.setattr(call, "_decode_item", decode)
    assert conversation_key(body(messages=[""] * 1_000_000))
    assert max(seen) <= MAX_BEGINNING
    assert len(seen) <= MAX_BEGINNING / 3
