import msgspec
import pytest

from core.contract.errors import InvalidRequest
from schemas.completions import CompletionRequest
from server.translate.response import check_stream_options


def decode(**fields):
    return msgspec.json.decode(msgspec.json.encode(fields), type=CompletionRequest)


@pytest.mark.parametrize("stream", [None, False])
def test_stream_options_need_stream(stream):
    with pytest.raises(InvalidRequest) as caught:
        check_stream_options(decode(stream=stream, stream_options={}))
    assert caught.value.param == "stream_options"


def test_stream_options_with_stream_are_accepted():
    check_stream_options(decode(stream=True, stream_options={"include_obfuscation": True}))
    check_stream_options(decode(stream_options=None))
