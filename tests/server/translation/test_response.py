import msgspec
import pytest

from core.contract.errors import InvalidRequest
from schemas.chat import ChatCompletionRequest
from schemas.completions import CompletionRequest
from schemas.generate import GenerateRequest
from server.apis.openai.chat import translate_chat
from server.apis.openai.completions import translate_completion, translate_generate
from server.generation.model import ServedModel
from server.settings.settings import Settings
from server.translation.refusals import check_shared_fields
from tests.support.engines import loaded
from tests.support.tokenizers import byte_level


def decode(**fields):
    return msgspec.json.decode(msgspec.json.encode(fields), type=CompletionRequest)


@pytest.mark.parametrize("stream", [None, False])
def test_stream_options_need_stream(stream):
    with pytest.raises(InvalidRequest) as caught:
        check_shared_fields(decode(stream=stream, stream_options={}))
    assert caught.value.param == "stream_options"


def test_stream_options_with_stream_are_accepted():
    check_shared_fields(decode(stream=True, stream_options={"include_obfuscation": True}))
    check_shared_fields(decode(stream_options=None))


FOUR = {"prompt": [[1, 2, 3, 4], [5, 6, 7, 8]], "max_tokens": 10}


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"logprobs": 2}, 2 * 10 * 3),
        ({"logprobs": 2, "n": 3}, 3 * 2 * 10 * 3),
        ({"logprobs": 2, "echo": True}, 2 * (4 + 10) * 3),
        ({"prompt_logprobs": 4}, 2 * 4 * 5),
        ({"prompt_logprobs": 4, "prompt": [1, 2, 3, 4]}, 4 * 5),
        ({"logprobs": 2, "echo": True, "stream": True}, 2 * 4 * 3),
    ],
)
def test_the_log_probabilities_of_an_answer_are_limited(fields, found):
    tokenizer = byte_level()

    def translate(most):
        model = ServedModel.of(Settings(max_answer_logprobs=most), loaded(object(), tokenizer))
        return translate_completion(decode(**(FOUR | fields)), model)

    translate(found)
    with pytest.raises(InvalidRequest, match=f"{found} log-prob.* limit is {found - 1}") as caught:
        translate(found - 1)
    assert caught.value.param == "logprobs"


@pytest.mark.parametrize(
    "fields", [{"logprobs": 20, "prompt": [1]}, {"stream": True, "logprobs": 9}]
)
def test_what_is_streamed_or_fits_the_context_is_not_limited(fields):
    model = ServedModel.of(Settings(max_answer_logprobs=1), loaded(object(), byte_level()))
    assert translate_completion(decode(**(FOUR | fields)), model)


MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("translate", "cls", "fields"),
    [
        (translate_chat, ChatCompletionRequest, {"messages": MESSAGES, "n": 2}),
        (translate_completion, CompletionRequest, FOUR),
        (translate_generate, GenerateRequest, {"prompt": "hi"}),
    ],
)
@pytest.mark.parametrize(
    ("given", "found"), [({"priority": -7}, -7), ({"priority": None}, 0), ({}, 0)]
)
def test_the_priority_reaches_the_job(translate, cls, fields, given, found):
    model = ServedModel.of(Settings(), loaded(object(), byte_level()))
    request = msgspec.json.decode(msgspec.json.encode(fields | given), type=cls)
    assert translate(request, model).priority == found
