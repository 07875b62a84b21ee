"""/tokenize: long texts are refused, long answers are encoded in slices."""

import msgspec
import pytest

from core.contract.errors import InvalidRequest
from schemas.limits import MAX_DEPTH, MAX_TOKENIZED
from schemas.tokenize import DetokenizeRequest, TokenizeRequest
from server.apis.openai.tokens import detokenize, tokenize
from server.generation.model import ServedModel
from server.settings.settings import Settings
from tests.support.engines import loaded
from tests.support.tokenizers import byte_level


@pytest.fixture(scope="module")
def model():
    return ServedModel.of(Settings(), loaded(object(), byte_level()))


def test_a_long_text(model):
    text = "Hé, fox! " * 2000
    answer = msgspec.json.decode(
        tokenize(TokenizeRequest(prompt=text, return_token_strs=True), model)
    )
    ids = model.tokenizer.encode(text, add_special_tokens=True)
    assert len(ids) > 4000
    assert answer["tokens"] == ids
    assert answer["token_strs"] == [model.tokenizer.token_text(token_id) for token_id in ids]
    assert answer["count"] == len(ids)
    back = msgspec.json.decode(detokenize(DetokenizeRequest(tokens=ids), model))
    assert text in back["prompt"]


def test_a_text_that_would_take_too_much_memory(model):
    messages = [{"role": "user", "content": "x" * MAX_TOKENIZED}]
    request = msgspec.convert({"messages": messages}, TokenizeRequest)
    with pytest.raises(InvalidRequest, match=f"bytes; the limit is {MAX_TOKENIZED}") as caught:
        tokenize(request, model)
    assert caught.value.param == "messages"
    with pytest.raises(msgspec.ValidationError, match=f"length <= {MAX_TOKENIZED}"):
        msgspec.convert({"prompt": "x" * (MAX_TOKENIZED + 1)}, TokenizeRequest)


def test_the_depth_of_template_arguments_is_limited(model):
    value = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    body = {"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"x": value}}
    with pytest.raises(InvalidRequest, match="levels deep") as caught:
        tokenize(msgspec.convert(body, TokenizeRequest), model)
    assert caught.value.param == "chat_template_kwargs"
