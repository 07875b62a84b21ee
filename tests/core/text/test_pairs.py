"""FirstOfPairs: the ids of a pair are those that the tokenizer makes of both texts at once."""

from copy import deepcopy

import pytest
from tokenizers.processors import RobertaProcessing

from core.contract.errors import InvalidRequest
from core.text import special_text
from core.text.tokenizer import Tokenizer
from tests.support.pooling_models import bert_tokenizer
from tests.support.tokenizers import byte_fallback, byte_level, metaspace, pure_python, word_piece


def roberta():
    chosen = deepcopy(byte_level())
    chosen.backend_tokenizer.post_processor = RobertaProcessing(("</s>", 1), ("<s>", 0))
    return chosen


def without_processor():
    chosen = bert_tokenizer()
    chosen.backend_tokenizer.post_processor = None
    return chosen


BUILDERS = {
    builder.__name__: builder
    for builder in (
        bert_tokenizer,
        byte_fallback,
        byte_level,
        metaspace,
        roberta,
        without_processor,
        word_piece,
    )
}
TEXTS = ["", " ", "a", "the fox walked", "日本 🙂, a fox.", "<s>[SEP]</s> x"]


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("first", TEXTS)
def test_pairs_are_the_tokenizers(name, first):
    chosen = BUILDERS[name]()
    beginning = Tokenizer(chosen).first_of_pairs(first)
    alone = chosen.backend_tokenizer.encode(first, add_special_tokens=False)
    assert len(beginning) == len(alone.ids)
    for second in TEXTS:
        expected = chosen.backend_tokenizer.encode(first, second)
        start = len(expected.ids)
        if "token_type_ids" in chosen.model_input_names:
            start = expected.type_ids.count(0)
        assert beginning.with_second(second) == (expected.ids, start)


def test_the_first_text_is_tokenized_once(monkeypatch):
    tokenizer = Tokenizer(bert_tokenizer())
    tokenizer.first_of_pairs("a").with_second("b")
    encoded, encode = [], special_text._encoded

    def noting(backend, given, **options):
        encoded.append(given)
        return encode(backend, given, **options)

    monkeypatch.setattr(special_text, "_encoded", noting)
    beginning = tokenizer.first_of_pairs("the query")
    for second in "xyz":
        beginning.with_second(second)
    assert encoded == ["the query", "x", "y", "z"]


def test_text_that_is_not_unicode_is_refused():
    tokenizer = Tokenizer(bert_tokenizer())
    for first, second in (("\ud800", "a"), ("a", "\ud800")):
        with pytest.raises(InvalidRequest, match="lone surrogate"):
            tokenizer.first_of_pairs(first).with_second(second)


def test_a_tokenizer_in_python_takes_no_pairs():
    with pytest.raises(InvalidRequest, match="no pairs"):
        Tokenizer(pure_python()).first_of_pairs("a")
