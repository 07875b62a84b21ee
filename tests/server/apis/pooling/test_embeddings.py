"""Texts to embed, as the model's tokenizer gets them."""

import dataclasses

import msgspec
import pytest

from core.contract.info import PoolingInfo
from schemas.embeddings import EmbeddingRequest
from server.apis.pooling.embeddings import translate_embeddings
from server.generation.model import ServedModel
from server.settings.settings import Settings
from tests.support.engines import loaded


@pytest.fixture
def prompt_of(tokenizer):
    """The token ids of a text for a model with these facts."""

    def prompt_of(text, **facts):
        served = ServedModel.of(Settings(), loaded(object()))
        pooling = PoolingInfo(task="embed", size=2, **facts)
        info = msgspec.structs.replace(served.info, pooling=pooling)
        model = dataclasses.replace(served, info=info, tokenizer=tokenizer)
        return translate_embeddings(EmbeddingRequest(input=text), model).prompts[0]

    return prompt_of


@pytest.mark.parametrize("text", ["a b", " a b", "a b ", "a\n", " ", "\n\n"])
def test_white_space_around_a_text_is_part_of_it(prompt_of, tokenizer, text):
    """sentence-transformers 6 does not strip texts either."""
    assert prompt_of(text) == tokenizer.encode(text, add_special_tokens=True)
    assert tokenizer.decode(prompt_of(text)) == text


def test_a_model_may_want_lower_case(prompt_of):
    assert prompt_of("Ab", lowercases=True) == prompt_of("ab")
    assert prompt_of("Ab") != prompt_of("ab")
