import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import ErrorObject, ErrorResponse
from server.rendering import sse


class Chunk(msgspec.Struct):
    text: str


class Twice(msgspec.Struct):
    text: str
    number: int
    same: str


@settings(deadline=None)
@given(st.text())
def test_a_frame_is_one_line_of_json(text):
    data = sse.frame(Chunk(text))
    assert data.startswith(b"data: ")
    assert data.endswith(b"\n\n")
    line = data.removeprefix(b"data: ").removesuffix(b"\n\n")
    assert b"\n" not in line
    assert b"\r" not in line
    assert msgspec.json.decode(line) == {"text": text}


def test_separators_that_some_clients_split_at_are_escaped():
    data = sse.frame(Chunk("a\u2028b\u2029c\u2026\u2027"))
    assert data == 'data: {"text":"a\\u2028b\\u2029c\u2026\u2027"}\n\n'.encode()
    assert msgspec.json.decode(data[6:]) == {"text": "a\u2028b\u2029c\u2026\u2027"}


def test_other_text_is_unchanged():
    assert sse.frame(Chunk("é日🙂")) == 'data: {"text":"é日🙂"}\n\n'.encode()


@settings(deadline=None)
@given(st.lists(st.text() | st.just('\u2028"\\\0')))
def test_a_filled_template_equals_the_frame(texts):
    template = sse.Template(sse.frame(Twice(sse.PLACEHOLDER, 7, sse.PLACEHOLDER)))
    for text in texts:
        assert template.fill(text) == sse.frame(Twice(text, 7, text))


def test_errors_are_frames():
    error = ErrorObject(message="no\n\u2028", type="server_error")
    assert sse.frame(ErrorResponse(error=error)) == (
        b'data: {"error":{"message":"no\\n\\u2028","type":"server_error",'
        b'"param":null,"code":null}}\n\n'
    )


def test_end_marker_and_comments():
    assert sse.DONE == b"data: [DONE]\n\n"
    assert sse.COMMENT.startswith(b":")
    assert sse.COMMENT.endswith(b"\n\n")
    assert sse.COMMENT.count(b"\n") == 2
